"""`ban` and `unban`: ends all certificates of a TPM, and lifts that."""

from signer.kube.decode import Json
from signer.operator_cli.ended_credentials import await_end_of_credentials
from signer.operator_cli.endorsement_keys import (
    KeyBody,
    change_key,
    describe_holder,
    find_key,
    is_banned,
    read_key_body,
)
from signer.operator_cli.errors import EXIT_OK, Rejected
from signer.operator_cli.output import time_text
from signer.operator_cli.session import Session


def run_ban(session: Session) -> int:
    """Ban a key; one that is not on record is recorded as banned."""
    name = find_key(session.api, session.arguments.key)
    body = read_key_body(session.api, name) or {}
    if not is_banned(body):
        end = "ends at once for writes" if session.arguments.now else "stays valid until it expires"
        session.confirm(
            f"EndorsementKey {name}: {describe_holder(body)}. After the ban, it gets no certificate"
            f" in any Cluster. A certificate that it has {end}."
        )
    ban = ban_fields(session)

    def set_ban(body: KeyBody) -> Json | None:
        return None if is_banned(body) else {"banned": ban}

    outcome = change_key(session.api, name, set_ban)
    done = "was banned before" if outcome == "unchanged" else "banned"
    session.stdout.write(f"EndorsementKey {name}: {done}\n")
    return await_end_of_credentials(session, name) if session.arguments.now else EXIT_OK


def ban_fields(session: Session) -> dict[str, str]:
    """Return `spec.banned` with the reason, the operator's user and the time."""
    return {
        "reason": session.arguments.reason,
        "by": session.api.username[:256],
        "since": time_text(session.now) or "",
    }


def run_unban(session: Session) -> int:
    """Lift the ban of a key."""
    name = find_key(session.api, session.arguments.key)
    if read_key_body(session.api, name) is None:
        raise Rejected(f"EndorsementKey {name} is not on record")

    def lift(body: KeyBody) -> Json | None:
        return {"banned": None} if is_banned(body) else None

    outcome = change_key(session.api, name, lift)
    done = "was not banned" if outcome == "unchanged" else "ban lifted"
    session.stdout.write(f"EndorsementKey {name}: {done}\n")
    return EXIT_OK
