"""`replace`: a machine has a new TPM or mainboard.

The new key is registered first. Then one write takes the registrations from the old key and bans
it, which frees the name of the node. In the other order, another key could claim the name between
the two writes (docs/operate/endorsement-keys.md).
"""

from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Json
from signer.operator_cli.commands.key_changes.ban import ban_fields
from signer.operator_cli.commands.key_changes.register import register
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys.ended_credentials import (
    await_end_of_credentials,
    describe_certificate,
)
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    change_key,
    clusters_of,
    describe_key,
    find_key,
    holder_of,
    is_banned,
    read_key_body,
    registrations_of,
    unless_changed,
)
from signer.operator_cli.keys.key_input import KeyRegistration, PublicEndorsementKey, read_key
from signer.operator_cli.management.snapshot import Selection, take_snapshot
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Register the new key for the machines of the old one, and ban the old one."""
    arguments = session.arguments
    new = read_key(arguments.new_key, session.stdin)
    chosen = find_key(session.api, arguments.key)
    old = chosen.name
    if new.name == old:
        raise InputInvalid("the new key must differ from the old one")
    body = read_key_body(session.api, old)
    if body is None:
        raise Rejected(f"EndorsementKey {old} does not exist", hint="use the command `register`")
    registrations = _registrations(body, new, chosen.cluster)
    new_body = read_key_body(session.api, new.name) or {}
    session.confirm(
        f"EndorsementKey {old}: {describe_key(body)}. Its machine gets the key {new.name}"
        f" ({describe_key(new_body)}), and the old key is banned."
        f" {describe_certificate(session, body, None)}"
    )
    # Before the first write: a replacement that is refused in its middle leaves both keys.
    change_key(session.api, old, unless_changed(body, lambda _: None))
    for registration in registrations:
        register(session, registration)
    ban = ban_fields(session)

    def end(body: KeyBody) -> Json | None:
        spec: dict[str, object] = {} if is_banned(body) else {"banned": ban}
        if registrations_of(body):
            spec["registeredFor"] = []
        return spec or None

    change_key(session.api, old, unless_changed(body, end))
    session.report(f"EndorsementKey {old} is replaced by {new.name}")
    _warn_of_annotations(session, old, registrations)
    if not arguments.now or session.is_dry_run:
        return EXIT_OK
    return await_end_of_credentials(session, old)


def _registrations(
    body: KeyBody, new: PublicEndorsementKey, cluster: ClusterKey | None
) -> list[KeyRegistration]:
    """Return the registrations for the new key: those of the old one, or one for its node.

    All are of one Cluster: `cluster`, if the operator named one.
    """
    entries = registrations_of(body)
    holder = holder_of(body)
    if not entries and holder is not None:
        entries = [{k: holder[k] for k in ("clusterNamespace", "clusterName", "providerID")}]
    if not entries:
        raise Rejected(
            "the old key is neither registered nor held by a node",
            hint="use the commands `register` and `ban`",
        )
    clusters = clusters_of(entries)
    if len(clusters) > 1 or clusters != {cluster or next(iter(clusters))}:
        names = ", ".join(sorted(map(str, clusters)))
        named = "one Cluster" if cluster is None else f"{cluster} alone"
        raise Rejected(
            f"the old key must be registered for {named}; it is registered for {names}",
            hint="use the command `register` for each machine that gets the new key, then `ban`",
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
