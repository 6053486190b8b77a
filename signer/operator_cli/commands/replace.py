"""`replace`: a machine has a new TPM or mainboard.

The new key is registered first. Then one write takes the registrations from the old key and bans
it, which frees the name of the node. In the other order, another key could claim the name between
the two writes (docs/operations.md).
"""

from signer.kube.decode import Json
from signer.model import ClusterKey
from signer.operator_cli.commands.ban import ban_fields
from signer.operator_cli.commands.register import register
from signer.operator_cli.ended_credentials import await_end_of_credentials
from signer.operator_cli.endorsement_keys import (
    KeyBody,
    change_key,
    describe_holder,
    find_key,
    holder_of,
    is_banned,
    read_key_body,
    registrations_of,
)
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys import KeyRegistration, PublicEndorsementKey, read_key
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import Selection, take_snapshot


def run(session: Session) -> int:
    """Register the new key for the machines of the old one, and ban the old one."""
    arguments = session.arguments
    new = read_key(arguments.new_key, session.stdin)
    old = find_key(session.api, arguments.key)
    if new.name == old:
        raise InputInvalid("the new key must differ from the old one")
    body = read_key_body(session.api, old)
    if body is None:
        raise Rejected(f"EndorsementKey {old} is not on record", hint="use the command `register`")
    registrations = _registrations(body, new)
    if not is_banned(body):
        session.confirm(
            f"EndorsementKey {old}: {describe_holder(body)}. The machine gets the key {new.name},"
            " and the old key is banned."
        )
    for registration in registrations:
        register(session, registration)
    ban = ban_fields(session)

    def end(body: KeyBody) -> Json | None:
        spec: dict[str, object] = {} if is_banned(body) else {"banned": ban}
        if registrations_of(body):
            spec["registeredFor"] = []
        return spec or None

    change_key(session.api, old, end)
    session.stdout.write(f"EndorsementKey {old} is replaced by {new.name}\n")
    _warn_of_annotations(session, old, registrations)
    return await_end_of_credentials(session, old) if arguments.now else EXIT_OK


def _registrations(body: KeyBody, new: PublicEndorsementKey) -> list[KeyRegistration]:
    """Return those of the old key, or one for the node that holds it."""
    entries = registrations_of(body)
    holder = holder_of(body)
    if not entries and holder is not None:
        entries = [{k: holder[k] for k in ("clusterNamespace", "clusterName", "providerID")}]
    if not entries:
        raise Rejected(
            "the old key is neither registered nor held by a node",
            hint="use the commands `register` and `ban`",
        )
    return [
        KeyRegistration(
            key=new,
            cluster=ClusterKey(namespace=e["clusterNamespace"], name=e["clusterName"]),
            machine=e.get("machineName"),
            provider_id=e.get("providerID"),
            node=e.get("nodeName"),
        )
        for e in entries
    ]


def _warn_of_annotations(session: Session, old: str, registrations: list[KeyRegistration]) -> None:
    """Name the Machines whose annotation still has the old key."""
    for cluster in {r.cluster for r in registrations}:
        snapshot = take_snapshot(session.api, Selection(cluster=cluster))
        for machine in snapshot.machines:
            if any(key.spki_sha256.hex() == old for key in machine.registered_keys.keys):
                session.warn(
                    f"the annotation of Machine {cluster.namespace}/{machine.name} still has the"
                    " old key: remove it"
                )
