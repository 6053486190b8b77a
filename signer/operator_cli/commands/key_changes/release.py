"""`release`: lets another Machine use a TPM although the old Machine object still exists."""

from signer.kinds.decode import Json
from signer.kinds.endorsement_key import Release
from signer.kinds.record import encode
from signer.operator_cli.errors import EXIT_OK, InputInvalid, Rejected
from signer.operator_cli.keys.endorsement_key_objects import (
    KeyBody,
    change_key,
    describe_holder,
    describe_key,
    find_key,
    holder_of,
    read_key_body,
    releases_of,
    unless_changed,
)
from signer.operator_cli.session import Session


def run(session: Session) -> int:
    """Add a Cluster, or one machine of it, to the nodes that may no longer use the key."""
    arguments = session.arguments
    if arguments.cluster is None:
        raise InputInvalid("--cluster NAMESPACE/NAME of the former owner is required")
    name = find_key(session.api, arguments.key).name
    body = read_key_body(session.api, name)
    if body is None:
        raise Rejected(f"EndorsementKey {name} does not exist: there is nothing to release")
    cluster = arguments.cluster
    entry = encode(Release.of(cluster, provider_id=arguments.provider_id))

    def add(body: KeyBody) -> Json | None:
        entries = releases_of(body)
        return None if entry in entries else {"releasedFrom": [*entries, entry]}

    _warn_of_other_holder(session, body)
    if add(body) is not None:
        session.confirm(
            f"EndorsementKey {name}: {describe_key(body)}. After the release, the nodes of"
            f" Cluster {cluster} get no certificate with it."
        )
    outcome = change_key(session.api, name, unless_changed(body, add))
    done = "was released before" if outcome == "unchanged" else "released"
    session.report(f"EndorsementKey {name}: {done}")
    return EXIT_OK


def _warn_of_other_holder(session: Session, body: KeyBody) -> None:
    """Warn if a node of another Cluster holds the key: the name may have a typing error."""
    cluster, holder = session.arguments.cluster, holder_of(body)
    if holder is None:
        return
    if (holder["clusterNamespace"], holder["clusterName"]) != (cluster.namespace, cluster.name):
        session.warn(f"{describe_holder(body)}: a release from Cluster {cluster} does not end that")
