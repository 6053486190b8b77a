"""Keeps the credential list of a workload cluster: bans and replacements end certificates there.

The reconciler publishes a certificate before its release. Maintenance makes all other changes, and
repairs what a crash left.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from signer.controller.cluster_context import CredentialPublisher
from signer.errors import ClaimConflict
from signer.inventory.credential_list import encode_entry
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject

_MAX_CHANGES_PER_ROUND: Final = 100
"""Each change of an entry costs a read of the claims."""
_MAX_ATTEMPTS: Final = 5
"""Writes of an entry. Each further one means that the claims changed during the one before."""


class ListClient(CredentialPublisher, Protocol):
    """The part of `CredentialListClient` that this module needs."""

    def read(self) -> Mapping[str, str] | None:
        """Return the entries by node name, `None` if the ConfigMap does not exist."""


def find_changed_list(
    before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
) -> ClusterKey | None:
    """Return the Cluster whose list a change of a key makes out of date, `None` if there is none.

    A ban or a release, and the end of one, are in the list within seconds. The holder's own writes
    change nothing: the reconciler publishes what it issues.
    """
    if before is None or after is None or after.held_by is None:
        return None
    if (before.banned, before.released_from) == (after.banned, after.released_from):
        return None
    return after.held_by.cluster


class ClaimReader(Protocol):
    """The part of `ClaimStore` that this module needs. Each raises `ApiServerUnavailable`."""

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node."""


def read_entry(claims: ClaimReader, cluster: ClusterKey, node_name: str) -> str | None:
    """Return the entry of a node that its claims in the API server ask for, `None` for no entry."""
    return _entry(claims.attested_node(cluster, node_name), claims.endorsement_key)


def publish_entries(
    publisher: CredentialPublisher,
    entries: Mapping[str, str | None],
    live_entry: Callable[[str], str | None],
) -> None:
    """Write entries, and read the claims after each write until both agree.

    A late write must neither bring back a certificate that a ban has ended, nor end one that
    another replica has issued meanwhile. A precondition on the whole list would let the renewals of
    other nodes delay a ban. Each change of the claims after the last read brings another write.

    Raises `ApiServerUnavailable`, and `ClaimConflict` if the claims changed during each attempt.
    """
    for _ in range(_MAX_ATTEMPTS):
        publisher.publish(entries)
        present = {name: live_entry(name) for name in entries}
        entries = {name: entry for name, entry in present.items() if entry != entries[name]}
        if not entries:
            return
    raise ClaimConflict("others write the claims of these nodes at the same time")


def sync_credential_list(
    client: ListClient,
    *,
    nodes: Callable[[], Iterable[AttestedNodeObject]],
    live_entry: Callable[[str], str | None],
    key: Callable[[str], EndorsementKeyObject | None],
) -> None:
    """Bring the list up to date with the claims.

    `nodes` and `key` are read from caches, after the list. An entry that the list has already is
    changed only to what `live_entry` reads: a cache may lack a certificate that was published, or a
    ban that another replica has written into the list, a moment ago. Raises what `publish_entries`
    raises.
    """
    stored = client.read()
    if stored is None:
        return
    cached = {node.node_name: node for node in nodes()}
    changes: dict[str, str | None] = {}

    def turn(name: str) -> tuple[bool, str]:
        """Put bans first: a list that is new, or that lacks many nodes, takes many rounds."""
        return _entry(cached.get(name), key) != "", name

    for name in sorted(cached.keys() | stored.keys(), key=turn):
        if len(changes) == _MAX_CHANGES_PER_ROUND:
            break
        current = stored.get(name)
        entry = _entry(cached.get(name), key)
        if entry != current and current is not None:
            entry = live_entry(name)
        if entry != current:
            changes[name] = entry
    if changes:
        publish_entries(client, changes, live_entry)


def _entry(
    node: AttestedNodeObject | None, key: Callable[[str], EndorsementKeyObject | None]
) -> str | None:
    """Return the entry of a node, `None` if it needs none.

    A key that an operator banned, or released from this node, makes the entry empty. Without
    recorded certificates nothing can be compared.
    """
    if node is None:
        return None
    held = key(node.endorsement_key)
    if held is not None and (held.banned or held.is_released_from(node.cluster, node.provider_id)):
        return ""
    return encode_entry(node.credential_ids) if node.credential_ids else None
