"""Watches of the management cluster: Clusters, Machines, claims, and the objects they refer to."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.clusters.connection_problem import ConnectionProblem
from signer.clusters.infrastructure_watches import InfrastructureWatches
from signer.clusters.state_check import StateCheck
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.inventory.caches import ManagementCaches
from signer.inventory.cluster_api.cluster import ClusterObject, read_cluster
from signer.inventory.cluster_api.machine_object import (
    MachineObject,
    PoolObject,
    read_machine,
    read_pool,
)
from signer.inventory.cluster_api.references import (
    BootstrapObject,
    InfrastructureObject,
    Reference,
    read_bootstrap,
)
from signer.inventory.custom_resources.policy_object import PolicyObject, read_policy
from signer.inventory.unreadable_kinds import UNREADABLE
from signer.kinds.attested_node import ATTESTED_NODES, AttestedNodeObject, read_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Source
from signer.kinds.endorsement_key import (
    ENDORSEMENT_KEYS,
    EndorsementKeyObject,
    read_endorsement_key,
)
from signer.kinds.key_request import KEY_REQUESTS, EndorsementKeyRequest, read_key_request
from signer.kinds.policy import POLICIES
from signer.kinds.resources import CLUSTER, KUBEADM_CONFIG, MACHINE, MACHINE_POOL, Kind, Resource
from signer.kube.discovery import find_resource
from signer.kube.transport.client import ApiClient
from signer.kube.unreadable import Unreadable
from signer.kube.watches.cache import Cache, EventHandler
from signer.kube.watches.watch import ResourceSpec
from signer.kube.watches.watch_threads import Watch, WatchThreads

V = TypeVar("V")
NotifyFunc = Callable[[ClusterKey | None, str | None], None]
"""Called with a Cluster and a name that changed; `None` means any."""

_PAGE_SIZE: Final = 500
"""Objects of one answer; a page that exceeds the size limit is read again with fewer."""
_MAX_WITH_KEY: Final = 100
"""AttestedNodes that may name one key. Two are unusual already."""


class ManagementCluster(ManagementCaches):
    """The caches of the management cluster, and the reflectors that fill them."""

    def __init__(  # noqa: PLR0913 - the last four are options
        self,
        api: ApiClient,
        stop: Event,
        notify: NotifyFunc,
        *,
        budgets: Budgets,
        infrastructure_groups: Iterable[str],
        namespace: str = "",
    ) -> None:
        """Watch one namespace, or all if `namespace` is empty.

        Infrastructure objects of groups other than `infrastructure_groups` are not watched.
        """
        super().__init__(budgets.memory)
        # Only administrators write policies, so no budget may refuse one.
        self.policies: Cache[PolicyObject] = Cache(
            "KubeletAttestationPolicies", unreadable=UNREADABLE["KubeletAttestationPolicies"]
        )
        # No check reads them, so one that exceeds the budget makes nothing incomplete.
        self.key_requests: Cache[EndorsementKeyRequest] = Cache(
            "EndorsementKeyRequests",
            unreadable=UNREADABLE["EndorsementKeyRequests"],
            indexes={"namespace": lambda r: [r.cluster.namespace]},
            budget=budgets.memory,
        )
        self._api = api
        self.namespace = namespace
        """The only namespace that is watched; empty for all."""
        self._notify = notify
        # Apart from the watches of workload clusters, which may be hostile.
        self.line = ComputeLine(1)
        """In which the threads of the watches compute."""
        self.state = StateCheck(time.monotonic)
        self._starter = WatchThreads(
            api,
            self.line,
            cpu=budgets.cpu,
            interrupted=self.state.note_interruption,
        )
        self._watches: list[Watch] = []
        self._synced_once = False
        self._infrastructure = InfrastructureWatches(
            api,
            # What a provider answers says nothing about the state of the management cluster.
            WatchThreads(api, self.line, cpu=budgets.cpu),
            stop,
            groups=infrastructure_groups,
            used_kinds=self.used_kinds,
            changed=self.reference_changed,
            budget=budgets.memory,
        )

    def start(self) -> None:
        """Start the watches."""
        self.clusters.add_event_handler(_before_and_after(self._cluster_changed))
        self.machines.add_event_handler(_before_and_after(self._machine_changed))
        self.pools.add_event_handler(_before_and_after(self._pool_changed))
        self.bootstraps.add_event_handler(self._bootstrap_changed)
        self.keys.add_event_handler(_before_and_after(self._key_changed))
        self.nodes.add_event_handler(_before_and_after(self._node_changed))
        self._watch("Clusters", CLUSTER, read_cluster, self.clusters)
        self._watch("Machines", MACHINE, read_machine, self.machines)
        self._watch("MachinePools", MACHINE_POOL, read_pool, self.pools)
        self._watch("KubeadmConfigs", KUBEADM_CONFIG, read_bootstrap, self.bootstraps)
        self._watch("EndorsementKeys", ENDORSEMENT_KEYS, read_endorsement_key, self.keys)
        self._watch("AttestedNodes", ATTESTED_NODES, read_attested_node, self.nodes)
        requests = KEY_REQUESTS.group_kind
        self._watch("EndorsementKeyRequests", requests, read_key_request, self.key_requests)
        policies = POLICIES.group_kind
        self._watch("KubeletAttestationPolicies", policies, read_policy, self.policies)
        self._infrastructure.start()

    def is_watching(self) -> bool:
        """Return whether the threads of the watches make progress, and none has been lost."""
        ended = any(watch.has_ended for watch in self._watches)
        return self.line.is_moving() and not ended and self._infrastructure.is_watching()

    def has_synced(self) -> bool:
        """Return whether Clusters, Machines, claims and policies can be read."""
        return all(cache.has_synced for cache in self._deciding())

    def has_synced_once(self) -> bool:
        """Return whether everything was listed at least once, even if it is listed again now."""
        self._synced_once = self._synced_once or self.has_synced()
        return self._synced_once

    def problem(self) -> ConnectionProblem | None:
        """Return why no request of any Cluster is decided: which kind is outdated."""
        outdated = [cache.plural for cache in self._deciding() if cache.is_outdated]
        if not outdated:
            return None
        message = (
            f"the management cluster's {' and '.join(outdated)} could not be read for over a"
            " minute: the log of the signer says why"
        )
        return ConnectionProblem(
            reason=ApiServerUnavailable.reason, message=message, reachable=True
        )

    def failing_seconds(self) -> Mapping[str, float]:
        """Return since how many seconds each kind cannot be read, by its plural; 0 if it can."""
        own = (*self._deciding(), self.bootstraps, self.key_requests)
        return {
            cache.plural: cache.failing_seconds for cache in (*own, *self._infrastructure.caches())
        }

    def list_again(self) -> None:
        """Let nothing be read until everything has been listed again: it was restored."""
        self.state.note_interruption()
        self.set_went_back({})
        for watch in self._watches:
            watch.list_again()
        self._infrastructure.list_again()
        self._notify(None, None)

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object, `None` if it does not exist.

        Raises `ApiServerUnavailable` until the objects of its kind have been listed.
        """
        return self._infrastructure.get(reference)

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Return the AttestedNodes that name an EndorsementKey, and whose Machine may exist.

        `None` if the caches lack objects: those of other namespaces than the watched one, or of a
        namespace that exceeds its budgets. They must not hide a node. Raises
        `ApiServerUnavailable`.
        """
        caches = (self.clusters, self.machines, self.pools, self.nodes)
        if self.namespace or not all(cache.is_complete for cache in caches):
            return None
        return super().attested_nodes_with_key(key_name)

    def unreadable(self) -> Iterator[tuple[str, Unreadable]]:
        """Yield each object that cannot be read, with the plural of its kind."""
        yield from super().unreadable()
        yield from self._infrastructure.unreadable()

    def require_complete(self, namespace: str) -> None:
        """Raise `ApiServerUnavailable` while the caches may lack what the API server has."""
        self.state.require_confirmed()
        # The policies in force are of the last list.
        self.policies.require_synced()
        super().require_complete(namespace)
        self._infrastructure.require_complete(namespace)

    def used_kinds(self) -> AbstractSet[Kind]:
        """Return group and kind of every object that a Machine or Cluster refers to."""
        references: list[Reference] = []
        for cache in (self.machines, self.clusters):
            if cache.has_synced:
                references += (r for r in cache.index_keys("refers") if isinstance(r, Reference))
        return {(r.group, r.kind) for r in references}

    def reference_changed(self, reference: Reference) -> None:
        """Notify the Machines and Clusters that refer to an object: its change is theirs."""
        if self.machines.has_synced:
            for machine in self.machines.by_index("refers", reference):
                self._notify(machine.cluster, machine.provider_id)
        if self.clusters.has_synced:
            for cluster in self.clusters.by_index("refers", reference):
                self._notify(cluster.key, None)

    def _deciding(self) -> Sequence[Cache[Any]]:
        """Return the caches without which no request of any Cluster can be decided."""
        claims = (self.keys, self.nodes)
        return (self.clusters, self.machines, self.pools, *claims, self.policies)

    def _bootstrap_changed(
        self, key: str, _before: BootstrapObject | None, _after: BootstrapObject | None
    ) -> None:
        namespace, _, name = key.partition("/")
        group, kind = KUBEADM_CONFIG
        self.reference_changed(Reference(group=group, kind=kind, namespace=namespace, name=name))

    def _watch(
        self, plural: str, watched: Kind | Resource, read: Callable[[Source], V], cache: Cache[V]
    ) -> None:
        """Watch a resource, or a kind in the version that the API server prefers."""
        path = partial(self._path, watched)
        resource = ResourceSpec(plural=plural, path=path, read=read, page_size=_PAGE_SIZE)
        self._watches.append(self._starter.start(resource, cache))

    def _path(self, watched: Kind | Resource) -> str | None:
        resource = watched if isinstance(watched, Resource) else find_resource(self._api, watched)
        if resource is None:
            return None
        return resource.collection_path(self.namespace if resource.namespaced else "")

    def _cluster_changed(self, cluster: ClusterObject) -> None:
        if cluster.infrastructure is not None:
            self._infrastructure.request(cluster.infrastructure)
        self._notify(cluster.key, None)

    def _machine_changed(self, machine: MachineObject) -> None:
        if machine.infrastructure is not None:
            self._infrastructure.request(machine.infrastructure)
        if machine.node_ref is not None:
            self._notify(machine.cluster, machine.node_ref)
        self._holder_changed(machine.cluster, machine.provider_id)

    def _pool_changed(self, pool: PoolObject) -> None:
        for provider_id in pool.provider_ids:
            self._holder_changed(pool.cluster, provider_id)

    def _holder_changed(self, cluster: ClusterKey, provider_id: str) -> None:
        """Notify of a provider ID, and of the claims under it that block other requests."""
        self._notify(cluster, provider_id)
        held_by = (cluster, provider_id)
        for node in self.nodes.by_index("provider ID", held_by) if self.nodes.has_synced else ():
            self._node_changed(node)

    def _key_changed(self, key: EndorsementKeyObject) -> None:
        self._notify(None, key.name)
        if key.held_by is not None:
            self._notify(key.held_by.cluster, key.held_by.node_name)
        for entry in key.registered_for:
            machine = None
            if entry.machine_name is not None and self.machines.has_synced:
                machine = self.machines.get(f"{entry.cluster.namespace}/{entry.machine_name}")
            provider_id = entry.provider_id or (machine and machine.provider_id)
            for name in (provider_id, entry.node_name):
                if name:
                    self._notify(entry.cluster, name)

    def _node_changed(self, node: AttestedNodeObject) -> None:
        self._notify(node.cluster, node.node_name)
        self._notify(None, node.endorsement_key)


def _before_and_after(changed: Callable[[V], None]) -> EventHandler[V]:
    """Call `changed` with the old and the new value: requests may wait for names of either."""

    def handler(_key: str, before: V | None, after: V | None) -> None:
        for value in (before, after):
            if value is not None:
                changed(value)

    return handler
