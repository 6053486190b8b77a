"""Watches of the management cluster: Clusters, Machines, claims, and what they refer to."""

from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final, TypeVar
from urllib.parse import quote

from signer.inventory.caches import ManagementCaches
from signer.inventory.claim_objects import read_attested_node, read_endorsement_key
from signer.inventory.claims import ATTESTED_NODES, ENDORSEMENT_KEYS
from signer.inventory.cluster import read_cluster
from signer.inventory.machine import (
    KUBEADM_CONFIG,
    InfrastructureObject,
    MachineObject,
    PoolObject,
    Reference,
    read_bootstrap,
    read_infrastructure,
    read_machine,
    read_pool,
)
from signer.kube.cache import Cache
from signer.kube.client import ApiClient, Json
from signer.kube.discovery import collection_path
from signer.kube.watch import Reflector, ResourceSpec
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject

V = TypeVar("V")
NotifyFunc = Callable[[ClusterKey | None, str | None], None]
"""Called with a Cluster and a name that changed; `None` stands for any."""

_CAPI: Final = "cluster.x-k8s.io"


class ManagementCluster(ManagementCaches):
    """What is known of the management cluster, each cache kept by a thread of its own."""

    def __init__(
        self, api: ApiClient, stop: Event, wake: NotifyFunc, *, namespace: str = ""
    ) -> None:
        """Watch one namespace, or all if `namespace` is empty."""
        super().__init__()
        self._api = api
        self._namespace = namespace
        self._stop = stop
        self._wake = wake
        self._lock = Lock()
        self._infrastructure: dict[tuple[str, str], Cache[InfrastructureObject]] = {}

    def start(self) -> None:
        """Begin to watch."""
        self.clusters.add_event_handler(_either(lambda c: self._wake(c.key, None)))
        self.machines.add_event_handler(_either(self._machine_changed))
        self.pools.add_event_handler(_either(self._pool_changed))
        self.keys.add_event_handler(_either(self._key_changed))
        self.nodes.add_event_handler(_either(self._node_changed))
        self._watch("Clusters", (_CAPI, "Cluster"), read_cluster, self.clusters)
        self._watch("Machines", (_CAPI, "Machine"), read_machine, self.machines)
        self._watch("MachinePools", (_CAPI, "MachinePool"), read_pool, self.pools)
        self._watch_references("KubeadmConfigs", KUBEADM_CONFIG, read_bootstrap, self.bootstraps)
        self._follow("EndorsementKeys", lambda: ENDORSEMENT_KEYS, read_endorsement_key, self.keys)
        self._follow(
            "AttestedNodes", lambda: self._scoped(ATTESTED_NODES), read_attested_node, self.nodes
        )

    def has_synced(self) -> bool:
        """Tell whether Clusters, Machines and claims have been seen once."""
        caches = (self.clusters, self.machines, self.pools, self.keys, self.nodes)
        return all(cache.has_synced for cache in caches)

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object; the first question for a kind begins to watch it.

        Raises `ApiServerUnavailable` while the kind's objects have not been seen.
        """
        return self._require_infrastructure(reference).get(reference.key)

    def _require_infrastructure(self, reference: Reference) -> Cache[InfrastructureObject]:
        kind = (reference.group, reference.kind)
        with self._lock:
            cache = self._infrastructure.get(kind)
            if cache is None:
                what = f"{reference.kind}s"
                cache = Cache(what)
                self._watch_references(what, kind, read_infrastructure, cache)
                # Last: where no thread can be started, the next question tries again.
                self._infrastructure[kind] = cache
            return cache

    def _watch_references(
        self, what: str, kind: tuple[str, str], read: Callable[[Json], V], cache: Cache[V]
    ) -> None:
        """Watch a kind that Machines or Clusters refer to: a change of it is a change of theirs."""

        def changed(key: str, _before: V | None, _after: V | None) -> None:
            namespace, _, name = key.partition("/")
            group, kind_name = kind
            refers = Reference(group=group, kind=kind_name, namespace=namespace, name=name)
            for machine in (
                self.machines.by_index("refers", refers) if self.machines.has_synced else ()
            ):
                self._wake(machine.cluster, machine.provider_id)
            for cluster in (
                self.clusters.by_index("refers", refers) if self.clusters.has_synced else ()
            ):
                self._wake(cluster.key, None)

        cache.add_event_handler(changed)
        self._watch(what, kind, read, cache)

    def _watch(
        self, what: str, kind: tuple[str, str], read: Callable[[Json], V], cache: Cache[V]
    ) -> None:
        """Watch a kind in whichever version the API server prefers."""
        self._follow(what, lambda: self._scoped(collection_path(self._api, *kind)), read, cache)

    def _scoped(self, path: str | None) -> str | None:
        """Return the path of a namespaced collection in the watched namespace."""
        if path is None or not self._namespace:
            return path
        version, _, plural = path.rpartition("/")
        return f"{version}/namespaces/{quote(self._namespace, safe='')}/{plural}"

    def _follow(
        self, what: str, path: Callable[[], str | None], read: Callable[[Json], V], cache: Cache[V]
    ) -> None:
        collection = ResourceSpec(plural=what, path=path, read=read)
        watch = Reflector(self._api, collection, cache, self._stop)
        Thread(target=watch.run, name=f"watch {what}", daemon=True).start()

    def _machine_changed(self, machine: MachineObject) -> None:
        if machine.infrastructure is not None:
            self._require_infrastructure(machine.infrastructure)
        if machine.node_ref is not None:
            self._wake(machine.cluster, machine.node_ref)
        self._holder_changed(machine.cluster, machine.provider_id)

    def _pool_changed(self, pool: PoolObject) -> None:
        for provider_id in pool.provider_ids:
            self._holder_changed(pool.cluster, provider_id)

    def _holder_changed(self, cluster: ClusterKey, provider_id: str) -> None:
        """Wake a Machine's own requests, and others' that its claims stand against."""
        self._wake(cluster, provider_id)
        held_by = (cluster, provider_id)
        for node in self.nodes.by_index("provider ID", held_by) if self.nodes.has_synced else ():
            self._node_changed(node)

    def _key_changed(self, key: EndorsementKeyObject) -> None:
        self._wake(None, key.name)
        if key.held_by is not None:
            self._wake(key.held_by.cluster, key.held_by.node_name)
        for entry in key.registered_for:
            machine = None
            if entry.machine_name is not None and self.machines.has_synced:
                machine = self.machines.get(f"{entry.cluster.namespace}/{entry.machine_name}")
            provider_id = entry.provider_id or (machine and machine.provider_id)
            for name in (provider_id, entry.node_name):
                if name:
                    self._wake(entry.cluster, name)

    def _node_changed(self, node: AttestedNodeObject) -> None:
        self._wake(node.cluster, node.node_name)
        self._wake(None, node.endorsement_key)


def _either(changed: Callable[[V], None]) -> Callable[[str, V | None, V | None], None]:
    """Call with the value as it was and as it is, so that both its old and new names are told."""

    def listener(_key: str, before: V | None, after: V | None) -> None:
        for value in (before, after):
            if value is not None:
                changed(value)

    return listener
