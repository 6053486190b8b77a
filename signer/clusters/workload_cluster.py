"""One workload cluster: its caches, their reflectors, and the writes to it.

Its API server may be hostile. So it has connections of its own, and budgets of memory and CPU time
apart from those of other tenants: what it does costs no other cluster anything.
"""

from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.claims.marker import Marker
from signer.fairness.compute_line import ComputeLine
from signer.fairness.cpu_budget import CpuShare
from signer.fairness.memory_budget import Budgets, MemoryShare
from signer.inventory.caches import (
    WorkloadCaches,
    read_binding,
    read_binding_uid,
    read_node,
    read_service,
)
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.inventory.marker_client import MarkerClient
from signer.inventory.node_labels import NodeLabelClient
from signer.inventory.node_taints import NodeTaintClient
from signer.inventory.unreadable_kinds import UNREADABLE
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.decode import Source
from signer.kinds.resources import CLUSTER_ROLE_BINDINGS, CSRS, NODES, SERVICES, Resource
from signer.kube.csrs import CsrClient, read_pending_csr
from signer.kube.transport.client import (
    MAX_WORKLOAD_PAGE,
    MAX_WORKLOAD_RESPONSE,
    MAY_HAVE_CHANGED,
    ApiClient,
)
from signer.kube.transport.kubeconfig import Connection
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import ResourceSpec
from signer.kube.watches.watch_threads import Watch, WatchThreads

V = TypeVar("V")

_CSR_PAGE_SIZE: Final = 4
"""CSRs of the first page. Requesters may make each as large as etcd's 1.5 MiB. Pages grow after
small answers."""
_PAGE_SIZE: Final = 50
"""Other objects of the first page: a Node with all its images has about 40 KiB."""


class WorkloadCluster(WorkloadCaches):
    """The caches of a workload cluster, the reflectors that fill them, and the writes to it."""

    def __init__(  # noqa: PLR0913 - the last three are options
        self,
        key: ClusterKey,
        uid: str,
        connection: Connection,
        *,
        user_agent: str,
        budgets: Budgets,
        line: ComputeLine,
    ) -> None:
        """Let the threads of the watches compute in the order of `line`."""
        super().__init__(key, uid, host=connection.host, budget=budgets.memory)
        self.connection = connection
        certificate = connection.certificate
        self.credential_expiry = None if certificate is None else certificate.not_after()
        """When the client certificate of the kubeconfig expires; `None` for a token."""
        self.cpu = CpuShare(budgets.cpu, key.namespace)
        self._api = ApiClient(
            str(key),
            connection,
            user_agent=user_agent,
            max_response=MAX_WORKLOAD_RESPONSE,
            max_page=MAX_WORKLOAD_PAGE,
            cpu=self.cpu,
            reading=MemoryShare(budgets.reading, key.namespace),
        )
        self.csrs: Cache[Csr] = Cache(
            "CertificateSigningRequests",
            unreadable=UNREADABLE["CertificateSigningRequests"],
            budget=budgets.memory,
            tenant=key.namespace,
        )
        self.writer = CsrClient(self._api)
        self.ended = EndedCertificatesClient(self._api)
        self.node_labels = NodeLabelClient(self._api)
        self.node_taints = NodeTaintClient(self._api)
        self.stopped = Event()
        """Set once this cluster is closed."""
        self._starter = WatchThreads(self._api, line)
        self._watches: list[Watch] = []
        self.marker_client = MarkerClient(self._api)
        self.marker: Marker | None = None
        """What the marker of the claims must say; `None` until it was read once."""
        self.maintenance_due = Event()
        """Set when maintenance must not wait for its next round."""
        self.full_maintenance_due = Event()
        """Set when that round must also read what seldom changes, such as the authority."""

    def start(self) -> None:
        """Start the watches; the CSRs' last, since their verification reads the others."""
        self._watch("ClusterRoleBindings", CLUSTER_ROLE_BINDINGS, read_binding, self.bindings)
        self._watch("Nodes", NODES, read_node, self.nodes)
        csrs = "CertificateSigningRequests"
        self._watch(csrs, CSRS, read_pending_csr, self.csrs, page_size=_CSR_PAGE_SIZE)

    def stop(self) -> None:
        """Stop the watches and empty the caches."""
        self.stopped.set()
        for watch in self._watches:
            watch.stop()
        self._api.close()
        for cache in (self.csrs, self.nodes, self.bindings, self.hosts):
            cache.close()

    @property
    def has_synced(self) -> bool:
        """Return whether every watched collection has been listed once."""
        return all(cache.has_synced for cache in (self.csrs, self.nodes, self.bindings))

    @property
    def is_watching(self) -> bool:
        """Return whether no watch has ended, or this cluster is closed."""
        ended = any(watch.has_ended for watch in self._watches)
        return not ended or self.stopped.is_set()

    @property
    def failure(self) -> tuple[str, ApiServerUnavailable] | None:
        """Return the plural of a collection whose last list or watch failed, and the error."""
        failed = ((w.reflector.plural, w.reflector.failure) for w in self._watches)
        return next(((plural, error) for plural, error in failed if error is not None), None)

    @property
    def has_answered(self) -> bool:
        """Return whether the API server has answered the list of a collection, or refused it."""
        caches = (self.csrs, self.nodes, self.bindings)
        failures = [watch.reflector.failure for watch in self._watches]
        answered = any(failure is not None and failure.status != 0 for failure in failures)
        return answered or any(cache.has_synced for cache in caches)

    @property
    def is_unreachable(self) -> bool:
        """Return whether the API server answered the last list or watch of no collection.

        A node can make its own objects unreadable; its API server answers the others.
        """
        failures = [watch.reflector.failure for watch in self._watches]
        return all(error is not None and error.status == 0 for error in failures)

    @property
    def is_unauthorized(self) -> bool:
        """Return whether the API server has refused the credential."""
        return self._api.endpoint.unauthorized

    def forget_unauthorized(self) -> None:
        """Forget the refusal: the Secret was read again, and has the same credential."""
        self._api.endpoint.unauthorized = False

    def close_idle_connections(self) -> None:
        """Close the connections other than those of the watches, if they are idle."""
        self._api.close_idle_connections()

    def read_hosts(self) -> None:
        """Read the addresses of the `kubernetes` service, which no certificate may name (S3)."""
        self.hosts.note_failure()
        response = self._api.get(SERVICES.object_path("kubernetes", "default"))
        self.hosts.replace(response.read(read_service))
        self.hosts.note_success()

    def remove_binding(self, name: str) -> None:
        """Delete an auto-approving binding, unless another one has its name since.

        The UID is a precondition. The role of a binding never changes.
        """
        path = CLUSTER_ROLE_BINDINGS.object_path(name)
        response = self._api.find(path)
        uid = None if response is None else response.read(read_binding_uid)
        if uid is not None:
            self._api.delete(path, {"uid": uid}, accepted=MAY_HAVE_CHANGED)

    def _watch(
        self,
        plural: str,
        watched: Resource,
        read: Callable[[Source], V | None],
        cache: Cache[V],
        *,
        page_size: int = _PAGE_SIZE,
    ) -> None:
        path = watched.collection_path()
        resource = ResourceSpec(plural=plural, path=path, read=read, page_size=page_size)
        self._watches.append(self._starter.start(resource, cache))
