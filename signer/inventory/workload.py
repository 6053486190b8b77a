"""One workload cluster: its caches, the writes to it, and who approves beside us.

Its API server may be hostile: it has its own connections and threads, so that what it does or
leaves undone costs no other cluster anything.
"""

from collections.abc import Callable
from http import HTTPStatus
from threading import Event, Thread
from typing import Final, TypeVar
from urllib.parse import quote

from signer.inventory.caches import (
    VALUE_SIZE,
    WorkloadCaches,
    read_binding,
    read_node,
    read_service,
)
from signer.kube.cache import Cache, Capacity
from signer.kube.client import ApiClient, Json
from signer.kube.csrs import CSRS, CsrClient, read_pending_csr
from signer.kube.kubeconfig import Connection
from signer.kube.watch import Reflector, ResourceSpec
from signer.model import ClusterKey, Csr

V = TypeVar("V")

_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_CSR_PAGE: Final = 8
"""CSRs a page: requesters may make each as large as etcd's 1.5 MiB."""
_CSR_ROOM: Final = 256 << 20
"""Bytes of all open CSRs: more than ten thousand nodes that join at once."""


class WorkloadCluster(WorkloadCaches):
    """What is known of a workload cluster by its watches, and what may be written to it."""

    def __init__(self, key: ClusterKey, uid: str, connection: Connection, *, agent: str) -> None:
        super().__init__(key, uid, host=connection.host)
        self.connection = connection
        self._api = ApiClient(f"{key.namespace}/{key.name}", connection, user_agent=agent)
        self.csrs: Cache[Csr] = Cache(
            "CertificateSigningRequests", room=Capacity(size=_CSR_ROOM, size_of=_csr_weight)
        )
        self.writer = CsrClient(self._api)
        self._stop = Event()
        self.maintenance_due = Event()
        """Set when upkeep should not wait for its next round."""

    def start(self) -> None:
        """Begin to watch; the CSRs last, since the others are asked about them."""
        self._watch("ClusterRoleBindings", _BINDINGS, read_binding, self.bindings)
        self._watch("Nodes", "/api/v1/nodes", read_node, self.nodes)
        self._watch("CertificateSigningRequests", CSRS, read_pending_csr, self.csrs, page=_CSR_PAGE)

    def stop(self) -> None:
        """End the watches, at their next event or silence at the latest."""
        self._stop.set()
        self.maintenance_due.set()
        self._api.close()

    @property
    def stopped(self) -> Event:
        """Return what is set once this cluster is not ours any more."""
        return self._stop

    def read_hosts(self) -> None:
        """Read the addresses of the `kubernetes` service, that no certificate may name (S3)."""
        body = self._api.get("/api/v1/namespaces/default/services/kubernetes").body
        self.hosts.replace(read_service(body))

    def remove_binding(self, name: str) -> None:
        """Delete an auto-approving binding."""
        gone = (HTTPStatus.OK, HTTPStatus.NOT_FOUND)
        self._api.delete(f"{_BINDINGS}/{quote(name, safe='')}", {}, accepted=gone)

    def _watch(
        self,
        what: str,
        path: str,
        read: Callable[[Json], V | None],
        cache: Cache[V],
        *,
        page: int = 100,
    ) -> None:
        collection = ResourceSpec(plural=what, path=lambda: path, read=read, page=page)
        watch = Reflector(self._api, collection, cache, self._stop)
        name = f"watch {self._api.name} {what}"
        Thread(target=watch.run, name=name, daemon=True).start()


def _csr_weight(csr: Csr) -> int:
    """Return about how many bytes a CSR takes: what the requester decides of it."""
    texts_of = (csr.name, csr.username, *csr.groups, *csr.usages, *csr.conditions)
    annotated = sum(len(key) + len(value) for key, value in csr.annotations.items())
    return 8 * VALUE_SIZE + len(csr.request) + annotated + sum(map(len, texts_of))
