"""`ban`: no more certificates are issued for a TPM."""

from signer.kube.decode import Json
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.keys.ended_credentials import (
    await_end_of_credentials,
    describe_certificate,
    warn_if_certificates_stay,
)
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    change_key,
    describe_key,
    find_key,
    is_banned,
    read_key_body,
    unless_changed,
)
from signer.operator_cli.output import printable, time_text
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Ban a key; create its object if there is none."""
    name = find_key(session.api, session.arguments.key).name
    body = read_key_body(session.api, name) or {}
    if session.arguments.now:
        warn_if_certificates_stay(session, name)
    certificate = describe_certificate(session, body)
    if is_banned(body):
        session.stderr.write(f"{printable(certificate)}\n")
    else:
        session.confirm(
            f"EndorsementKey {name}: {describe_key(body)}. After the ban, no more certificates are"
            f" issued for this key in any Cluster. {certificate}"
        )
    ban = ban_fields(session)

    def set_ban(body: KeyBody) -> Json | None:
        return None if is_banned(body) else {"banned": ban}

    outcome = change_key(session.api, name, unless_changed(body, set_ban))
    done = "was banned before" if outcome == "unchanged" else "banned"
    session.report(f"EndorsementKey {name}: {done}")
    if not session.arguments.now or session.is_dry_run:
        return EXIT_OK
    return await_end_of_credentials(session, name)


def ban_fields(session: Session) -> dict[str, str]:
    """Return `spec.banned` with the reason, the operator's user and the time."""
    return {
        "reason": session.arguments.reason,
        "by": session.api.username[:256],
        "since": time_text(session.now) or "",
    }
