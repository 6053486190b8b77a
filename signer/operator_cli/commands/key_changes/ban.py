"""`ban`: no more certificates are issued for a TPM, and its present ones end; lifts a ban, too."""

from datetime import datetime, timedelta
from typing import Any

from common.node_identity import MAX_TERM
from signer.kinds.decode import Json
from signer.kinds.endorsement_key import BannedNode, read_endorsement_key
from signer.kinds.record import encode
from signer.operator_cli.errors import EXIT_OK, InputInvalid
from signer.operator_cli.keys.ended_credentials import (
    await_end_of_credentials,
    describe_certificate,
    find_claim,
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
    """Ban a key, and create its object if there is none; or lift its ban."""
    arguments = session.arguments
    if arguments.certificates_too and not arguments.lift:
        raise InputInvalid("--certificates-too goes with --lift only")
    if arguments.lift:
        if arguments.reason is not None or arguments.node is not None or arguments.now:
            raise InputInvalid("--lift goes with --certificates-too only")
        return _lift(session)
    if arguments.reason is None:
        raise InputInvalid("--reason TEXT is required")
    return _ban(session)


def _ban(session: Session) -> int:
    node = session.arguments.node
    name = find_key(session.api, session.arguments.key).name
    body = read_key_body(session.api, name) or {}
    certificate = describe_certificate(session, body, node)
    if is_banned(body) and node is None:
        session.stderr.write(f"{printable(certificate)}\n")
    else:
        session.confirm(
            f"EndorsementKey {name}: {describe_key(body)}. After the ban, no more certificates are"
            f" issued for this key in any Cluster. {certificate}"
        )
    named: dict[str, Any] = {}
    if node is not None:
        cluster, node_name = node
        named["node"] = encode(BannedNode.of(cluster, node_name=node_name))
    ban = ban_fields(session) | named

    def set_ban(body: KeyBody) -> Json | None:
        if not is_banned(body):
            return {"banned": ban}
        stored = body["spec"]["banned"]
        return {"banned": named} if stored | named != stored else None

    outcome = change_key(session.api, name, unless_changed(body, set_ban))
    done = "was banned before" if outcome == "unchanged" else "banned"
    session.report(f"EndorsementKey {name}: {done}")
    if not session.arguments.now or session.is_dry_run:
        return EXIT_OK
    return await_end_of_credentials(session, name)


def ban_fields(session: Session) -> dict[str, Any]:
    """Return `spec.banned` with the reason, the operator's user and the time."""
    return {
        "reason": session.arguments.reason,
        "by": session.api.username[:256],
        "since": time_text(session.now) or "",
    }


def _lift(session: Session) -> int:
    """Lift the ban of a key, or one that only the list of a workload cluster has.

    What the ban ended stays ended, since the next certificate is of the next term.
    """
    too = session.arguments.certificates_too
    name = find_key(session.api, session.arguments.key, banned=True).name
    body = read_key_body(session.api, name) or {}
    ended = (
        "its certificates that the ban ended may write again"
        if too
        else "what the ban ended stays ended: run `kubelet-authenticator-tpm renew` on its node,"
        " and restart the kubelet there"
    )
    session.confirm(
        f"EndorsementKey {name}: {describe_key(body)}. After the ban is lifted, the TPM with this"
        f" key can get certificates again; {ended}."
    )
    claim = find_claim(session, body)
    former = 0 if claim is None else claim.term

    def lift(body: KeyBody) -> Json | None:
        lifted = {
            "at": time_text(_after_all(session.now, body)),
            "by": session.api.username[:256],
            "certificatesToo": too or None,
        }
        if not is_banned(body):
            # Only the list may have the ban. It says which term is the next one.
            return {"banLifted": lifted}
        term = max(former, read_endorsement_key(body).term)
        spec: dict[str, Any] = {"banned": None, "banLifted": lifted}
        return spec if too else spec | {"term": min(term + 1, MAX_TERM)}

    change_key(session.api, name, unless_changed(body, lift))
    session.report(f"EndorsementKey {name}: ban lifted")
    return EXIT_OK


def _after_all(now: datetime, body: KeyBody) -> datetime:
    """Return a time later than that of the ban and of an earlier lift, which decide by it."""
    if not body:
        return now
    key = read_endorsement_key(body)
    lifted = None if key.ban_lifted is None else key.ban_lifted.at
    earlier = (key.banned_since, lifted)
    return max([now, *(each + timedelta(seconds=1) for each in earlier if each is not None)])
