"""Keeps the credential list of a workload cluster: bans and replacements end certificates there.

A certificate that is issued is published before its release, by the reconciler. This module makes
all other changes, and repairs what a crash or a race of two replicas left.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from signer.inventory.credential_list import StoredList, encode_entry
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject

_MAX_CHANGES_PER_ROUND: Final = 100
"""Each change of an entry costs a read of the AttestedNode."""


class ListClient(Protocol):
    """The part of `CredentialListClient` that this module needs."""

    def read(self) -> StoredList | None:
        """Return the list, `None` if the ConfigMap does not exist."""

    def change(self, stored: StoredList, changes: Mapping[str, str | None]) -> None:
        """Write entries, and remove those whose value is `None`, unless the list has changed."""


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


def sync_credential_list(
    client: ListClient,
    *,
    nodes: Callable[[], Iterable[AttestedNodeObject]],
    live_node: Callable[[str], AttestedNodeObject | None],
    key: Callable[[str], EndorsementKeyObject | None],
) -> None:
    """Bring the list up to date with the claims.

    `nodes` and `key` are read from caches, after the list. An entry that the list has already is
    changed only after `live_node` has read the claim: a cache may lack a certificate that was
    published a moment ago. Raises `ApiServerUnavailable`.
    """
    stored = client.read()
    if stored is None:
        return
    cached = {node.node_name: node for node in nodes()}
    changes: dict[str, str | None] = {}

    def turn(name: str) -> tuple[bool, str]:
        """Put bans first: a list that is new, or that lacks many nodes, takes many rounds."""
        return _entry(cached.get(name), key) != "", name

    for name in sorted(cached.keys() | stored.entries.keys(), key=turn):
        if len(changes) == _MAX_CHANGES_PER_ROUND:
            break
        current = stored.entries.get(name)
        node = cached.get(name)
        if _entry(node, key) != current and current is not None:
            node = live_node(name)
        entry = _entry(node, key)
        if entry != current:
            changes[name] = entry
    if changes:
        client.change(stored, changes)


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
