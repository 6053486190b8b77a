"""An inventory of objects in files, in the caches that the signer fills from its watches.

An object that is in no file counts as absent, so the report counts the objects by kind.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.explain.manifests import FilesInvalid, get_str, kind_of
from signer.inventory.caches import (
    ManagementCaches,
    WorkloadCaches,
    read_binding,
    read_node,
    read_service,
)
from signer.inventory.cluster_api.cluster import NODES_NOT_ATTESTED, read_cluster
from signer.inventory.cluster_api.machine_object import read_machine, read_pool
from signer.inventory.cluster_api.references import (
    InfrastructureObject,
    Reference,
    read_bootstrap,
    read_infrastructure,
)
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.attested_node import ATTESTED_NODES, read_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Json, Source, object_key
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS, read_endorsement_key
from signer.kinds.policy import POLICIES
from signer.kinds.resources import (
    CLUSTER,
    CLUSTER_ROLE_BINDINGS,
    KUBEADM_CONFIG,
    MACHINE,
    MACHINE_POOL,
    NODES,
    SERVICES,
    Kind,
)
from signer.kube.watches.cache import Cache
from signer.policy.policy import PolicySet

V = TypeVar("V")

_ALWAYS_COUNTED: Final = frozenset(
    {
        "Cluster",
        "Machine",
        "Node",
        "EndorsementKey",
        "AttestedNode",
        "KubeletAttestationPolicy",
        "ClusterRoleBinding",
        "Service",
    }
)
"""Kinds that every verdict depends on, so that the report shows when there is no object of one."""


class OfflineObjects(ManagementCaches):
    """The objects of some files, of the management cluster and of one workload cluster."""

    def __init__(self, bodies: Sequence[Json]) -> None:
        """Read all objects of the management cluster.

        Raises `FilesInvalid` with every object that cannot be read.
        """
        super().__init__()
        self._problems: list[str] = []
        self._by_reference = dict(self._with_references(bodies))
        self._bodies = tuple(self._by_reference.values())
        self._fill(self.clusters, CLUSTER, read_cluster)
        self._fill(self.machines, MACHINE, read_machine)
        self._fill(self.pools, MACHINE_POOL, read_pool)
        self._fill(self.bootstraps, KUBEADM_CONFIG, read_bootstrap)
        self._fill(self.keys, ENDORSEMENT_KEYS.group_kind, read_endorsement_key)
        self._fill(self.nodes, ATTESTED_NODES.group_kind, read_attested_node)
        policies = self._read(POLICIES.group_kind, read_policy).values()
        self.policies = PolicySet.of(each.policy for each in policies)
        if self._problems:
            raise FilesInvalid(*self._problems)

    def workload(self, key: ClusterKey) -> WorkloadCaches:
        """Return the caches of that Cluster's workload cluster, with all its objects in the files.

        Raises `FilesInvalid` with every object that cannot be read.
        """
        cluster = self.clusters.get(str(key))
        caches = WorkloadCaches(key, "" if cluster is None else cluster.uid, host="")
        self._fill(caches.nodes, NODES.group_kind, read_node)
        self._fill(caches.bindings, CLUSTER_ROLE_BINDINGS.group_kind, read_binding)
        condition = None if cluster is None else cluster.bindings
        caches.keeps_bindings = condition is not None and condition.reason == NODES_NOT_ATTESTED
        services = self._of(SERVICES.group_kind)
        hosts = (read_service(body) for body in services if _is_api_server(body))
        caches.hosts.replace({key: host for names in hosts for key, host in names.items()})
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
        except ValueError as error:
            # For the signer, too, it leaves its namespace undecided.
            message = f"{reference.kind} {reference.key} cannot be read"
            raise ApiServerUnavailable(message, detail=str(error)[:500]) from error

    def went_back(self, _cluster: ClusterKey) -> None:
        """Return that no claims were lost: the files are what verdicts are replayed from."""

    def object_counts(self) -> Mapping[str, int]:
        """Return how many objects of each kind the files have."""
        counts = Counter(kind for _, kind in map(kind_of, self._bodies))
        return {kind: counts[kind] for kind in sorted({*counts} | _ALWAYS_COUNTED)}

    def _with_references(self, bodies: Sequence[Json]) -> Iterator[tuple[Reference, Json]]:
        for body in bodies:
            group, kind = kind_of(body)
            name = get_str(body, "metadata", "name")
            if name is None:
                self._problems.append(f"{kind}: metadata.name is missing")
                continue
            namespace = get_str(body, "metadata", "namespace") or ""
            yield Reference(group=group, kind=kind, namespace=namespace, name=name), body

    def _of(self, kind: Kind) -> list[Json]:
        return [body for body in self._bodies if kind_of(body) == kind]

    def _fill(self, cache: Cache[V], kind: Kind, read: Callable[[Source], V | None]) -> None:
        cache.replace(self._read(kind, read))

    def _read(self, kind: Kind, read: Callable[[Source], V | None]) -> Mapping[str, V]:
        values: dict[str, V] = {}
        for body in self._of(kind):
            try:
                value, key = read(body), object_key(body)
            except ValueError as error:
                self._problems.append(f"{kind[1]} {get_str(body, 'metadata', 'name')}: {error}")
                continue
            if value is not None:
                values[key] = value
        return values


def _is_api_server(body: Json) -> bool:
    key = (get_str(body, "metadata", "namespace"), get_str(body, "metadata", "name"))
    return key == ("default", "kubernetes")
