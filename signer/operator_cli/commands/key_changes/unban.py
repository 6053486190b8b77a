"""`unban`: lifts the ban of a TPM."""

from signer.kube.decode import Json
from signer.operator_cli.errors import EXIT_OK, Rejected
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    change_key,
    describe_key,
    find_key,
    is_banned,
    read_key_body,
    unless_changed,
)
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Lift the ban of a key."""
    name = find_key(session.api, session.arguments.key, banned=True).name
    body = read_key_body(session.api, name)
    if body is None:
        raise Rejected(f"EndorsementKey {name} does not exist")
    if is_banned(body):
        session.confirm(
            f"EndorsementKey {name}: {describe_key(body)}. After the ban is lifted, the TPM with"
            " this key can get certificates again."
        )

    def lift(body: KeyBody) -> Json | None:
        return {"banned": None} if is_banned(body) else None

    outcome = change_key(session.api, name, unless_changed(body, lift))
    done = "was not banned" if outcome == "unchanged" else "ban lifted"
    session.report(f"EndorsementKey {name}: {done}")
    return EXIT_OK
