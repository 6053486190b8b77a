"""Keeps the credential list of a workload cluster: bans and replacements end certificates there.

It also repairs what a crash left, removes the entries of nodes that are gone, and raises alarms.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from common.errors import ApiServerUnavailable, AttestationError
from signer.claims.credential_entry import CredentialEntry, is_older
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.controller.observability.audit import log_cluster_alarm
from signer.errors import ClaimsOutOfDate, CredentialListFull
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.credential_list import (
    ClaimReader,
    CredentialList,
    CredentialListClient,
    publish_entries,
)
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.model import AttestedNodeObject, MachineState

_MAX_READS_PER_ROUND: Final = 100
"""Nodes whose claims a round reads from the API server."""
_NEARLY_FULL: Final = 0.8
_MAX_NAMES: Final = 10
"""Nodes that an alarm names."""


class CredentialListSync:
    """Brings the lists of workload clusters up to date with the claims."""

    def __init__(self, management: ManagementCluster, claims: KubeClaimStore) -> None:
        self._management = management
        self._claims = claims

    def sync(self, workload: WorkloadCluster) -> Sequence[AttestationError]:
        """Bring a list up to date; return the alarms, which are in the log.

        Raises what `publish_entries` raises.
        """
        key, nodes = workload.key, self._management.nodes
        cached, live = self.readers(workload)
        alarms = sync_credential_list(
            workload.credentials,
            lambda: [node.node_name for node in nodes.all() if node.cluster == key],
            cached=cached,
            live=live,
        )
        for alarm in alarms:
            log_cluster_alarm(key, alarm)
        return alarms

    def readers(self, workload: WorkloadCluster) -> tuple[ClaimReader, ClaimReader]:
        """Return what reads the claims of a Cluster from the caches, and from the API server."""
        claims, management = self._claims, self._management
        cached = ClaimReader(
            node=CachedInventory(management, workload).attested_node,
            key=management.keys.get,
            is_gone=partial(self._is_gone, workload, management.has_machine),
        )
        live = ClaimReader(
            node=partial(claims.attested_node, workload.key),
            key=claims.endorsement_key,
            is_gone=partial(self._is_gone, workload, self._may_have_machine),
        )
        return cached, live

    def _is_gone(
        self,
        workload: WorkloadCluster,
        may_have_machine: Callable[[AttestedNodeObject], bool],
        name: str,
        node: AttestedNodeObject | None,
    ) -> bool:
        """Return whether a node has neither a Node nor a Machine. A lost claim names no Machine."""
        if not workload.nodes.has_synced:
            return False
        try:
            if workload.nodes.get(name) is not None:
                return False
            workload.nodes.require_complete(workload.key.namespace)
            self._management.require_complete(workload.key.namespace)
        except ApiServerUnavailable:
            return False
        return node is None or not may_have_machine(node)

    def _may_have_machine(self, node: AttestedNodeObject) -> bool:
        """Return whether the API server has the Machine of a claim, or its Cluster is paused."""
        state = self._claims.machine_state(node.cluster, node.provider_id, node.machine_name)
        return state is not MachineState.ABSENT


def sync_credential_list(
    lists: CredentialListClient,
    names: Callable[[], Iterable[str]],
    *,
    cached: ClaimReader,
    live: ClaimReader,
) -> Sequence[AttestationError]:
    """Bring a list up to date with the claims; return what an operator must know.

    `names` returns the names of all nodes with a claim. They and `cached` are read after the list.
    An entry that the list has already is changed only to what `live` reads: a cache may lack a
    certificate that was published, or a ban that another replica has written into the list, a
    moment ago. Raises what `publish_entries` raises.
    """
    listed = lists.read()
    if listed is None:
        return ()
    outdated: list[tuple[int, str]] = []
    older: list[str] = []
    for name in {*names(), *listed.texts}:
        entry = listed.entry(name)
        following = cached.next_entry(listed, name, entry)
        if not _is_listed(listed, name, following):
            outdated.append((_turn(following), name))
        elif is_older(cached.node(name), entry):
            older.append(name)
    changes = {}
    for _, name in sorted(outdated)[:_MAX_READS_PER_ROUND]:
        reader = live if name in listed.texts else cached
        following = reader.next_entry(listed, name, listed.entry(name))
        if not _is_listed(listed, name, following):
            changes[name] = following
    if changes:
        publish_entries(lists, changes, partial(live.next_entry, listed))
    alarms: list[AttestationError] = []
    if _has_older_claim(listed, older, live):
        alarms.append(
            ClaimsOutOfDate(
                "AttestedNodes are missing or older than the credential list, as after a restore of"
                " the management cluster: the entries of these nodes stay until they renew",
                detail=", ".join(sorted(older)[:_MAX_NAMES]),
            )
        )
    if listed.used() >= _NEARLY_FULL:
        message = (
            "the credential list uses 80 % or more of its space: when it is full, the writes of"
            " further nodes are not restricted"
        )
        alarms.append(CredentialListFull(message))
    return alarms


def _has_older_claim(listed: CredentialList, names: Iterable[str], live: ClaimReader) -> bool:
    """Return whether one of these claims is older than its entry, and not only in the cache."""
    read = sorted(names)[:_MAX_READS_PER_ROUND]
    return any(is_older(live.node(name), listed.entry(name)) for name in read)


def _is_listed(listed: CredentialList, name: str, entry: CredentialEntry | None) -> bool:
    """Return whether the list has exactly this entry, or none for `None`."""
    return listed.texts.get(name) == (None if entry is None else entry.encode())


def _turn(entry: CredentialEntry | None) -> int:
    """Put bans first, then what makes space: a list that lacks many nodes takes many rounds."""
    return 1 if entry is None else 2 if entry.ids else 0
