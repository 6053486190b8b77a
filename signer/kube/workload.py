"""One workload cluster: its caches, the writes to it, and who approves beside us.

Its API server may be hostile: it has its own connections and threads, so that what it does or
leaves undone costs no other cluster anything.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from threading import Event, Thread
from typing import Final, TypeVar
from urllib.parse import quote

from signer.kube.cache import Cache
from signer.kube.client import Api, Json
from signer.kube.csrs import CSRS, CsrWriter, read_open_csr
from signer.kube.kubeconfig import Connection
from signer.kube.watch import Collection, Watch
from signer.model import ClusterKey, Csr, Node
from signer.records.raw import required, text, texts

V = TypeVar("V")

_AUTO_APPROVE: Final = "kubeadm:node-autoapprove-"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_CSR_PAGE: Final = 40
"""CSRs a page: etcd's 1.5 MiB each stay below what is read of one answer."""


class Workload:
    """What is known of a workload cluster, and what may be written to it."""

    def __init__(self, key: ClusterKey, uid: str, connection: Connection, *, agent: str) -> None:
        self.key = key
        self.uid = uid
        self.connection = connection
        self._api = Api(f"{key.namespace}/{key.name}", connection, user_agent=agent)
        self.csrs: Cache[Csr] = Cache("CertificateSigningRequests")
        self.nodes: Cache[Node] = Cache(
            "Nodes", indexes={"provider ID": lambda n: [n.provider_id] if n.provider_id else []}
        )
        self.bindings: Cache[str] = Cache("ClusterRoleBindings")
        self.hosts: Cache[str] = Cache("the kubernetes service's addresses")
        self.writer = CsrWriter(self._api)
        self._stop = Event()
        self.attend = Event()
        """Set when upkeep should not wait for its next round."""

    def start(self) -> None:
        """Begin to watch; the CSRs last, since the others are asked about them."""
        self._watch("ClusterRoleBindings", _BINDINGS, _read_binding, self.bindings)
        self._watch("Nodes", "/api/v1/nodes", _read_node, self.nodes)
        self._watch("CertificateSigningRequests", CSRS, read_open_csr, self.csrs, page=_CSR_PAGE)

    def stop(self) -> None:
        """End the watches, at their next event or silence at the latest."""
        self._stop.set()
        self.attend.set()
        self._api.close()

    @property
    def stopped(self) -> Event:
        """Return what is set once this cluster is not ours any more."""
        return self._stop

    def read_hosts(self) -> None:
        """Read the addresses of the `kubernetes` service, that no certificate may name (S3)."""
        body = self._api.get("/api/v1/namespaces/default/services/kubernetes").body
        addresses = (*texts(body, "spec", "clusterIPs"), text(body, "spec", "clusterIP"))
        self.hosts.fill({address: address for address in addresses if address})

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
        page: int = 500,
    ) -> None:
        collection = Collection(what=what, path=lambda: path, read=read, page=page)
        watch = Watch(self._api, collection, cache, self._stop)
        name = f"watch {self._api.name} {what}"
        Thread(target=watch.run, name=name, daemon=True).start()


def hosts_of(workload: Workload) -> Iterable[str]:
    """Return the names and addresses that the workload cluster's API server is reached by."""
    return (*workload.hosts.all(), workload.connection.host)


def _read_node(body: Json) -> Node:
    return Node(
        name=required(body, "metadata", "name"), provider_id=text(body, "spec", "providerID") or ""
    )


def _read_binding(body: Json) -> str | None:
    name = required(body, "metadata", "name")
    return name if name.startswith(_AUTO_APPROVE) else None
