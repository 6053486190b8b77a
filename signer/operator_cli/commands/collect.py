"""`collect`: writes one archive for a bug report, without keys, secrets and free texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from common.errors import AttestationError
from common.names import CLIENT_SIGNER, SERVING_SIGNER
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.replica_records.replica_leases import SETTINGS_LABEL
from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.decode import read_as
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.key_request import KEY_REQUESTS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import (
    CLUSTER,
    CSRS,
    EVENTS,
    LEASES,
    MACHINE,
    PODS,
    Resource,
    build_path,
)
from signer.kube.discovery import find_resource
from signer.kube.events import COMPONENT
from signer.kube.transport.client import ApiClient
from signer.kube.unreadable import Unreadable
from signer.operator_cli.collection import allowed_fields as allowed
from signer.operator_cli.collection.archive import Archive
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, CommandError, InputInvalid
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import (
    Unreachable,
    for_each_workload,
    list_workload,
)

Body = dict[str, Any]
_BUILTIN_SERVING: Final = "kubernetes.io/kubelet-serving"
_SIGNERS: Final = frozenset({CLIENT_SIGNER, SERVING_SIGNER, _BUILTIN_SERVING})
_POD_LABEL: Final = "app.kubernetes.io/name=node-attestation-signer"
_LOG_LINES: Final = {"tailLines": "2000", "limitBytes": str(4 << 20)}


def run(session: Session) -> int:
    """Write the archive; the exit status says whether everything could be read."""
    path = session.arguments.file or Path(f"node-attestation-{session.now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise InputInvalid(f"{path} exists; the archive must be a new file")
    archive = Archive(session.now)
    collector = _Collector(session, session.api, archive)
    with session.progress("reading the management cluster"):
        collector.read_versions()
        collector.read_objects()
        collector.read_signer()
    collector.read_workloads()
    try:
        archive.write(path)
    except OSError as error:
        raise InputInvalid(f"{path}: {error.strerror}; the archive must be a new file") from error
    session.report(f"{path}: {len(archive.files)} files; MANIFEST says what is in them")
    return EXIT_UNDECIDED if collector.is_incomplete else EXIT_OK


@dataclass
class _Collector:
    """Reads objects into the archive. What cannot be read is a warning and a line of MANIFEST."""

    session: Session
    api: ManagementApi
    archive: Archive
    is_incomplete: bool = False

    def read_versions(self) -> None:
        """Add the versions of this program and of the API server."""
        with self._reading("versions.json", "version of the API server"):
            server = self.api.get("/version").read(read_as(Body))
            versions = {"program": version("node-attestation"), "server": server["gitVersion"]}
            fields = dict.fromkeys(versions, allowed.VERSION)
            self.archive.add("versions.json", "versions", [versions], fields)

    def read_objects(self) -> None:
        """Add the objects of this project and of Cluster API, with the signer's Events."""
        arguments, api = self.session.arguments, self.api
        namespace = arguments.cluster.namespace if arguments.cluster else arguments.namespace

        def listing(resource: Resource | None) -> Sequence[Body]:
            if resource is None:
                return ()
            path = resource.collection_path(namespace if resource.namespaced else "")
            left_out: list[Unreadable] = []
            found = api.list_objects(path, left_out=left_out)
            self.session.warn_left_out(left_out)
            return found

        self._add("policies", allowed.POLICY, lambda: listing(POLICIES))
        self._add("attested-nodes", allowed.ATTESTED_NODE, lambda: listing(ATTESTED_NODES))
        self._add("endorsement-keys", allowed.ENDORSEMENT_KEY, lambda: listing(ENDORSEMENT_KEYS))
        self._add("key-requests", allowed.KEY_REQUEST, lambda: listing(KEY_REQUESTS))
        self._add("clusters", allowed.CLUSTER, lambda: listing(find_resource(api, CLUSTER)))
        self._add("machines", allowed.MACHINE, lambda: listing(find_resource(api, MACHINE)))
        self._add("events", allowed.EVENT, lambda: filter(_is_of_signer, listing(EVENTS)))

    def read_signer(self) -> None:
        """Add Leases and Pods of the signer, and the log and metrics of each Pod."""
        api, namespace = self.api, self.session.arguments.signer_namespace
        leases, pods = LEASES.collection_path(namespace), PODS.collection_path(namespace)
        query = {"labelSelector": SETTINGS_LABEL}
        self._add("leases", allowed.LEASE, lambda: api.list_objects(leases, query))
        found: list[Body] = []
        with self._reading("pods.json", "pods"):
            found = api.list_objects(pods, {"labelSelector": _POD_LABEL})
            self.archive.add("pods.json", "pods", found, allowed.POD)
        for pod in found:
            self._read_pod(pod, pod["metadata"]["name"], namespace)

    def read_workloads(self) -> None:
        """Add the requests of nodes in the opted-in workload clusters."""
        try:
            clusters = self.session.snapshot().opted_in()
        except CommandError as error:
            self._fail("csrs", "opted-in Clusters", error.message)
            return
        for cluster, result in for_each_workload(self.session, clusters, _read_csrs):
            name = f"csrs/{cluster.key.namespace}/{cluster.key.name}.json"
            if isinstance(result, Unreachable):
                self._fail(name, "requests", f"{cluster.key}: {result}")
            else:
                self.archive.add(name, "requests", result, allowed.CSR)

    def _read_pod(self, pod: Body, name: str, namespace: str) -> None:
        api, file = self.api, f"pods/{name}"
        with self._reading(f"{file}/log.json", "log lines"):
            log = PODS.object_path(name, namespace, subresource="log")
            text = api.get(log, _LOG_LINES).content.decode(errors="replace")
            self.archive.add_log(f"{file}/log.json", "log lines", text)
        with self._reading(f"{file}/metrics.json", "samples of metrics"):
            proxy = PODS.object_path(_metrics_address(pod), namespace, subresource="proxy")
            text = api.get(proxy + build_path("metrics")).content.decode()
            self.archive.add_metrics(f"{file}/metrics.json", "samples of metrics", text)

    def _add(self, kind: str, fields: allowed.Fields, read: Callable[[], Iterable[Body]]) -> None:
        with self._reading(f"{kind}.json", kind):
            self.archive.add(f"{kind}.json", kind, read(), fields)

    @contextmanager
    def _reading(self, name: str, what: str) -> Iterator[None]:
        """Go on if a file cannot be made."""
        try:
            yield
        except CommandError as error:
            self._fail(name, what, error.message)
        except AttestationError as error:
            self._fail(name, what, f"{error.message} {error.detail}")
        except ValueError:
            self._fail(name, what, "the content has another form")

    def _fail(self, name: str, what: str, reason: str) -> None:
        self.is_incomplete = True
        # The reason may quote an answer, so it is not in the archive.
        self.session.warn(f"{name} is missing: {reason}")
        self.archive.add_missing(name, what)


def _is_of_signer(event: Body) -> bool:
    return bool((event.get("source") or {}).get("component") == COMPONENT)


def _read_csrs(client: ApiClient, _: ClusterObject) -> Sequence[Body]:
    return [b for b in list_workload(client, CSRS, left_out=[]) if _signer_name(b) in _SIGNERS]


def _signer_name(body: Body) -> object:
    spec = body.get("spec")
    name = spec.get("signerName") if isinstance(spec, dict) else None
    return name if isinstance(name, str) else None


def _metrics_address(pod: Body) -> str:
    """Return how the proxy of the API server names the metrics of a Pod of the signer.

    Raises `ValueError`: it serves none.
    """
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == "metrics":
                scheme = "https:" if "--metrics-secure" in container.get("args", ()) else ""
                return f"{scheme}{pod['metadata']['name']}:{port['containerPort']}"
    raise ValueError
