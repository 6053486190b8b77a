"""One workload cluster: its caches, the writes to it, and who approves beside us.

Its API server may be hostile: it has its own connections and threads, so that what it does or
leaves undone costs no other cluster anything.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from threading import Event, Thread
from typing import Final, TypeVar
from urllib.parse import quote

from signer.kube.cache import Cache, Room
from signer.kube.client import Api, Json
from signer.kube.csrs import CSRS, CsrWriter, read_open_csr
from signer.kube.kubeconfig import Connection
from signer.kube.watch import Collection, Watch
from signer.model import ClusterKey, Csr, Node
from signer.records.raw import required, text, texts

V = TypeVar("V")

_AUTO_APPROVE: Final = "kubeadm:node-autoapprove-"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_CSR_PAGE: Final = 8
"""CSRs a page: requesters may make each as large as etcd's 1.5 MiB."""
_CSR_ROOM: Final = 256 << 20
"""Bytes of all open CSRs: more than ten thousand nodes that join at once."""
_ROOM: Final = 32 << 20
"""Bytes of all names and provider IDs: a hundred thousand Nodes."""
_VALUE: Final = 256
"""Bytes that a value takes beside its texts, about."""


class Workload:
    """What is known of a workload cluster, and what may be written to it."""

    def __init__(self, key: ClusterKey, uid: str, connection: Connection, *, agent: str) -> None:
        self.key = key
        self.uid = uid
        self.connection = connection
        self._api = Api(f"{key.namespace}/{key.name}", connection, user_agent=agent)
        self.csrs: Cache[Csr] = Cache(
            "CertificateSigningRequests", room=Room(size=_CSR_ROOM, weigh=_csr_weight)
        )
        self.nodes: Cache[Node] = Cache(
            "Nodes",
            indexes={"provider ID": lambda n: [n.provider_id] if n.provider_id else []},
            room=Room(size=_ROOM, weigh=lambda n: _VALUE + len(n.name) + len(n.provider_id)),
        )
        self.bindings: Cache[str] = Cache(
            "ClusterRoleBindings", room=Room(size=_ROOM, weigh=lambda n: _VALUE + len(n))
        )
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
        page: int = 100,
    ) -> None:
        collection = Collection(what=what, path=lambda: path, read=read, page=page)
        watch = Watch(self._api, collection, cache, self._stop)
        name = f"watch {self._api.name} {what}"
        Thread(target=watch.run, name=name, daemon=True).start()


def hosts_of(workload: Workload) -> Iterable[str]:
    """Return the names and addresses that the workload cluster's API server is reached by."""
    return (*workload.hosts.all(), workload.connection.host)


def _csr_weight(csr: Csr) -> int:
    """Return about how many bytes a CSR takes: what the requester decides of it."""
    texts_of = (csr.name, csr.username, *csr.groups, *csr.usages, *csr.conditions)
    annotated = sum(len(key) + len(value) for key, value in csr.annotations.items())
    return 8 * _VALUE + len(csr.request) + annotated + sum(map(len, texts_of))


def _read_node(body: Json) -> Node:
    return Node(
        name=required(body, "metadata", "name"), provider_id=text(body, "spec", "providerID") or ""
    )


def _read_binding(body: Json) -> str | None:
    name = required(body, "metadata", "name")
    return name if name.startswith(_AUTO_APPROVE) else None
