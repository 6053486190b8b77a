"""An inventory of objects in files, in the caches that the signer fills from its watches.

An object that is in no file counts as absent, so the report counts the objects by kind.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from common.names import API_GROUP
from signer.explain.manifests import FilesInvalid, get_str, kind_of
from signer.inventory.caches import (
    ManagementCaches,
    WorkloadCaches,
    cluster_key,
    read_binding,
    read_node,
    read_service,
)
from signer.inventory.claim_objects import read_attested_node, read_endorsement_key
from signer.inventory.cluster import read_cluster
from signer.inventory.machine import (
    KUBEADM_CONFIG,
    InfrastructureObject,
    Reference,
    read_bootstrap,
    read_infrastructure,
    read_machine,
    read_pool,
)
from signer.kube.cache import Cache
from signer.kube.decode import Json, Source, object_key
from signer.model import ClusterKey

V = TypeVar("V")

_CLUSTER: Final = ("cluster.x-k8s.io", "Cluster")
_MACHINE: Final = ("cluster.x-k8s.io", "Machine")
_POOL: Final = ("cluster.x-k8s.io", "MachinePool")
_ENDORSEMENT_KEY: Final = (API_GROUP, "EndorsementKey")
_ATTESTED_NODE: Final = (API_GROUP, "AttestedNode")
_NODE: Final = ("", "Node")
_BINDING: Final = ("rbac.authorization.k8s.io", "ClusterRoleBinding")
_SERVICE: Final = ("", "Service")

_ALWAYS_COUNTED: Final = (
    _CLUSTER,
    _MACHINE,
    _NODE,
    _ENDORSEMENT_KEY,
    _ATTESTED_NODE,
    _BINDING,
    _SERVICE,
)
"""Kinds that every verdict depends on, so that the report shows when there is no object of one."""


class Dump(ManagementCaches):
    """The objects of some files, of the management cluster and of one workload cluster."""

    def __init__(self, bodies: Sequence[Json]) -> None:
        """Read all objects of the management cluster.

        Raises:
            FilesInvalid: with every object that cannot be read.

        """
        super().__init__()
        self._problems: list[str] = []
        self._by_reference = dict(self._with_references(bodies))
        self._bodies = tuple(self._by_reference.values())
        self._fill(self.clusters, _CLUSTER, read_cluster)
        self._fill(self.machines, _MACHINE, read_machine)
        self._fill(self.pools, _POOL, read_pool)
        self._fill(self.bootstraps, KUBEADM_CONFIG, read_bootstrap)
        self._fill(self.keys, _ENDORSEMENT_KEY, read_endorsement_key)
        self._fill(self.nodes, _ATTESTED_NODE, read_attested_node)
        if self._problems:
            raise FilesInvalid(*self._problems)

    def workload(self, key: ClusterKey) -> WorkloadCaches:
        """Return the caches of that Cluster's workload cluster, with all its objects in the files.

        Raises:
            FilesInvalid: with every object that cannot be read.

        """
        cluster = self.clusters.get(cluster_key(key))
        caches = WorkloadCaches(key, "" if cluster is None else cluster.uid, host="")
        self._fill(caches.nodes, _NODE, read_node)
        self._fill(caches.bindings, _BINDING, read_binding)
        hosts = (read_service(body) for body in self._of(_SERVICE) if _is_api_server(body))
        caches.hosts.replace({host: host for names in hosts for host in names})
        if self._problems:
            raise FilesInvalid(*self._problems)
        return caches

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Return an infrastructure object of any kind, or `None` if no file has it."""
        body = self._by_reference.get(reference)
        if body is None:
            return None
        try:
            return read_infrastructure(body)
        except ValueError:
            # A watch skips unreadable objects, too.
            return None

    def object_counts(self) -> Mapping[str, int]:
        """Return how many objects of each kind the files have."""
        counts = Counter(kind for _, kind in map(kind_of, self._bodies))
        kinds = {*counts, *(kind for _, kind in _ALWAYS_COUNTED)}
        return {kind: counts[kind] for kind in sorted(kinds)}

    def _with_references(self, bodies: Sequence[Json]) -> Iterator[tuple[Reference, Json]]:
        for body in bodies:
            group, kind = kind_of(body)
            name = get_str(body, "metadata", "name")
            if name is None:
                self._problems.append(f"{kind}: metadata.name is missing")
                continue
            namespace = get_str(body, "metadata", "namespace") or ""
            yield Reference(group=group, kind=kind, namespace=namespace, name=name), body

    def _of(self, kind: tuple[str, str]) -> list[Json]:
        return [body for body in self._bodies if kind_of(body) == kind]

    def _fill(
        self, cache: Cache[V], kind: tuple[str, str], read: Callable[[Source], V | None]
    ) -> None:
        values: dict[str, V] = {}
        for body in self._of(kind):
            try:
                value, key = read(body), object_key(body)
            except ValueError as e:
                self._problems.append(f"{kind[1]} {get_str(body, 'metadata', 'name')}: {e}")
                continue
            if value is not None:
                values[key] = value
        cache.replace(values)


def _is_api_server(body: Json) -> bool:
    key = (get_str(body, "metadata", "namespace"), get_str(body, "metadata", "name"))
    return key == ("default", "kubernetes")
