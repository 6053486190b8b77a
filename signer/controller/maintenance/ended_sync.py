"""Keeps the list of ended certificates of a workload cluster: bans, lifts, and what is missing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from common.errors import ApiServerUnavailable
from signer.claims.ended_entry import EndedEntry, NameClaims, next_entry
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.errors import AttestedNodeUnreadable
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.inventory.ended_certificates import EndedCertificates
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, LiftedBan

_MAX_CHANGES: Final = 2000
"""Entries that a round changes."""
_UNSAID: Final = (None, (), None, 1)
"""What operators say of most keys."""


class EndedSync:
    """Brings the lists of workload clusters up to date with the claims."""

    def __init__(self, management: ManagementCluster, claims: KubeClaimStore) -> None:
        self._management = management
        self._claims = claims

    def sync(self, workload: WorkloadCluster, lifetime: timedelta, now: datetime) -> None:
        """Bring a list up to date, and repair its policies.

        `lifetime` is that of the longest certificate of the Cluster. A cache may be older than the
        list, so an entry is changed only to what follows from the claims in the API server.

        Raises what `EndedCertificatesClient.change` raises.
        """
        round_ = _Round(self._management, self._claims, workload.key, lifetime, now)
        listed = workload.ended.change(
            lambda listed: dict(islice(round_.changes(listed), _MAX_CHANGES))
        )
        if listed is not None and listed.parts:
            workload.ended.write(listed, {})


class _Round:
    """What the claims of one Cluster say."""

    def __init__(
        self,
        management: ManagementCluster,
        claims: KubeClaimStore,
        cluster: ClusterKey,
        lifetime: timedelta,
        now: datetime,
    ) -> None:
        self._keys = management.keys
        self._claims = claims
        self._cluster = cluster
        self._lifetime = lifetime
        self._now = now
        self._nodes = {n.node_name: n for n in management.nodes.all() if n.cluster == cluster}
        self._banned: dict[str, list[EndorsementKeyObject]] = defaultdict(list)
        # While a key cannot be read, those that AttestedNodes name still count.
        with suppress(ApiServerUnavailable):
            for key in management.keys.by_index("banned", True):  # noqa: FBT003 # its only value
                for name in _names(key, cluster):
                    self._banned[name].append(key)

    def changes(self, listed: EndedCertificates) -> Iterator[tuple[str, EndedEntry | None]]:
        """Yield what entries must become: first bans, then what is new, then the others."""
        names = dict.fromkeys((*self._banned, *self._nodes, *listed.names))
        for name in names:
            entry = listed.entry(name)
            following = self._following(name, entry)
            if following != entry:
                yield name, following

    def _following(self, name: str, entry: EndedEntry | None) -> EndedEntry | None:
        """Return what follows an entry. What cannot be read changes nothing.

        A cache may be old, and may lack a claim. So only a new entry for a node with a claim comes
        from the caches alone.
        """
        try:
            claims = self._cached(name)
            following = self._next(entry, claims, self._lifted(entry))
        except ApiServerUnavailable:
            return entry
        if following == entry or (entry is None and claims.node is not None):
            return following
        try:
            return self._next(entry, self._live(name), self._lifted(entry, live=True))
        except AttestedNodeUnreadable:
            return entry

    def _next(
        self, entry: EndedEntry | None, claims: NameClaims, lifted: LiftedBan | None
    ) -> EndedEntry | None:
        return next_entry(entry, claims, lifted, lifetime=self._lifetime, now=self._now)

    def _cached(self, name: str) -> NameClaims:
        node = self._nodes.get(name)
        key = None if node is None else self._keys.get(node.endorsement_key)
        return NameClaims(node=node, key=key, banned=_others(self._banned[name], key))

    def _live(self, name: str) -> NameClaims:
        node = self._claims.attested_node(self._cluster, name)
        key = None if node is None else self._claims.endorsement_key(node.endorsement_key)
        read = (self._claims.endorsement_key(each.name) for each in self._banned[name])
        banned = [each for each in read if each is not None and each.banned]
        return NameClaims(node=node, key=key, banned=_others(banned, key))

    def _lifted(self, entry: EndedEntry | None, *, live: bool = False) -> LiftedBan | None:
        """Return the last lifted ban of the key that an entry names."""
        if entry is None or not entry.is_ban:
            return None
        keys = (key for key in self._keys.all() if key.name.startswith(entry.key))
        key = next(keys, None)
        if key is not None and live:
            key = self._claims.endorsement_key(key.name)
        return None if key is None else key.ban_lifted


def clusters_of_changed_key(
    before: EndorsementKeyObject | None, after: EndorsementKeyObject | None
) -> frozenset[ClusterKey]:
    """Return the Clusters whose list a change of a key makes out of date.

    So the list shows within seconds that a ban or a release began or ended. A claim of the holder
    needs no change of the list here: the reconciler lists what it issues.
    """
    key = before if after is None else after
    if key is None or _said(before) == _said(after):
        return frozenset()
    held = {key.held_by.cluster} if key.held_by is not None else set()
    banned = key.banned_node
    return frozenset(held | ({banned.cluster} if banned is not None else set()))


def _said(key: EndorsementKeyObject | None) -> tuple[object, ...]:
    """Return what operators say of a key that ends certificates."""
    if key is None:
        return _UNSAID
    return key.banned, key.released_from, key.ban_lifted, key.term


def _names(key: EndorsementKeyObject, cluster: ClusterKey) -> Iterator[str]:
    """Yield the names of the nodes of a Cluster whose certificates the ban of a key ends."""
    if key.held_by is not None and key.held_by.cluster == cluster:
        yield key.held_by.node_name
    if key.banned_node is not None and key.banned_node.cluster == cluster:
        yield key.banned_node.node_name


def _others(
    banned: Sequence[EndorsementKeyObject], own: EndorsementKeyObject | None
) -> list[EndorsementKeyObject]:
    return [key for key in banned if own is None or key.name != own.name]
