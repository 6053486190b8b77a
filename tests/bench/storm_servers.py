"""Storms against real API servers: of nodes with software evidence, and of plain requests."""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from common.names import (
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    CLIENT_USAGES,
    ENDORSEMENT_KEY_ANNOTATION,
)
from tests.bench.software_node import SoftwareNode
from tests.bench.stand_in_server import CSRS
from tests.bench.storm import AUTHORITY, ENDORSEMENT, NODES, TIMEOUT, Phase, cpu_seconds
from tests.controlplane import pins, provide
from tests.harness import objects, pki, process
from tests.harness.controlplane import ApiServer
from tests.harness.management import ManagementCluster
from tests.harness.signer import OPT_IN, Signer
from tests.harness.workload import BOOTSTRAPPERS, WorkloadCluster

NAMESPACE: Final = "storm"
_PLAIN_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_THREADS: Final = 8

Json = dict[str, Any]


@dataclass(slots=True)
class Exchange:
    """One node's requests, and when they were answered."""

    user: str
    group: str
    offer: tuple[str, bytes]
    node: SoftwareNode | None
    """`None` for a plain request."""
    uid: str = ""
    challenged: bool = False
    certified: float = 0.0


@dataclass(slots=True)
class Storm:
    """The exchanges of one storm, by user."""

    exchanges: Mapping[str, Exchange]
    started: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def latencies(self) -> list[float]:
        """Return the seconds from the start to each certificate, sorted."""
        return sorted(e.certified - self.started for e in self.exchanges.values() if e.certified)


class RealServers:
    """A management cluster and one workload cluster; nodes file requests by impersonation."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        directory.mkdir()
        version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
        self._assets = provide.kubernetes(version, provide.ALL)
        self._directory = directory
        key = pki.rsa_key() if AUTHORITY == "rsa" else pki.ec_key()
        self.management = ManagementCluster("management", directory / "management", self._assets)
        self._workload = WorkloadCluster("storm", directory / "storm", self._assets, key=key)
        for server in (self.management, self._workload):
            stack.callback(server.stop)
            server.start()
        self._nodes = [
            SoftwareNode(
                f"node-{n}", f"bench://storm/node-{n}", seed=str(n), endorsement=ENDORSEMENT
            )
            for n in range(NODES)
        ]
        self._pool = stack.enter_context(ThreadPoolExecutor(_THREADS))
        self._local = threading.local()
        self._register()

    def storm(self, name: str, signer: Signer) -> Phase:
        """File an offer for each node, open the Cluster to the signer, and wait for the end."""
        self._opt_in(None)
        renewal = name == "renew"
        exchanges = [self._exchange(n, renewal=renewal) for n in range(NODES)]
        storm = Storm({exchange.user: exchange for exchange in exchanges})
        self._file_all(storm, CLIENT_SIGNER)
        return self._measure(
            name, storm, lambda: self._opt_in(OPT_IN), pid=signer.pid, alive=signer.is_running
        )

    def controller_manager(self, name: str, *flags: str) -> Phase:
        """File a plain request for each node, and start kube-controller-manager to sign them."""
        self._workload.allow_automatic_approval()
        exchanges = [self._plain(n) for n in range(NODES)]
        storm = Storm({exchange.user: exchange for exchange in exchanges})
        self._file_all(storm, _PLAIN_SIGNER)
        pki_directory = self._workload.directory / "pki"
        argv: list[str | Path] = [
            self._assets / "kube-controller-manager",
            f"--kubeconfig={self._workload.admin_config}",
            f"--cluster-signing-cert-file={pki_directory / 'ca.crt'}",
            f"--cluster-signing-key-file={pki_directory / 'ca.key'}",
            "--controllers=csrapproving,csrsigning",
            "--leader-elect=false",
            "--secure-port=0",
            *flags,
        ]
        with ExitStack() as stack:
            pid = 0

            def start() -> None:
                nonlocal pid
                log = self._directory / "controller-manager.log"
                pid = stack.enter_context(process.running(argv, log=log)).pid

            title = f"kube-controller-manager, {name}"
            return self._measure(title, storm, start, pid=lambda: pid, alive=lambda: True)

    def _measure(
        self,
        name: str,
        storm: Storm,
        start: Callable[[], None],
        *,
        pid: int | Callable[[], int],
        alive: Callable[[], bool],
    ) -> Phase:
        before = 0.0 if callable(pid) else cpu_seconds(pid)
        servers = self._servers_cpu()
        threading.Thread(target=self._follow, args=(storm,), daemon=True).start()
        storm.started = time.monotonic()
        start()
        deadline = time.monotonic() + TIMEOUT
        while not storm.done.wait(1.0):
            assert alive(), "the program that signs has ended"
            assert time.monotonic() < deadline, f"{len(storm.latencies())} certificates"
        latencies = storm.latencies()
        return Phase(
            name=name,
            # Without the time that a program takes to start.
            seconds=latencies[-1] - latencies[0],
            latencies=latencies,
            cpu=cpu_seconds(pid() if callable(pid) else pid) - before,
            servers_cpu=self._servers_cpu() - servers,
        )

    def _servers_cpu(self) -> float:
        servers: tuple[ApiServer, ...] = (self.management, self._workload)
        return sum(cpu_seconds(pid) for server in servers for pid in server.pids())

    def _register(self) -> None:
        """Create the Cluster, its Secrets and all Machines."""
        management = self.management
        management.create_namespace(NAMESPACE)
        management.create_cluster(NAMESPACE, "storm", endpoint=self._workload.url)
        management.store_kubeconfig(NAMESPACE, "storm", self._workload.signer_kubeconfig())
        management.store_authority(NAMESPACE, "storm", self._workload.authority.pair)
        list(self._pool.map(self._create_machine, self._nodes))

    def _create_machine(self, node: SoftwareNode) -> None:
        registration = {ENDORSEMENT_KEY_ANNOTATION: node.registration()}
        spec = objects.Machine(node.name, provider_id=node.provider_id, annotations=registration)
        self.management.create_object(
            NAMESPACE, objects.machine("storm", spec, provider_id=node.provider_id)
        )

    def _opt_in(self, annotations: Mapping[str, str] | None) -> None:
        values = annotations or dict.fromkeys(OPT_IN)
        path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/clusters/storm"
        self.management.admin.patch(path, {"metadata": {"annotations": values}})

    def _exchange(self, number: int, *, renewal: bool) -> Exchange:
        node = self._nodes[number]
        user = f"system:node:{node.name}" if renewal else f"system:bootstrap:b{number:0>5}"
        group = "system:nodes" if renewal else BOOTSTRAPPERS
        offer = node.offer(f"offer-{'renew' if renewal else 'join'}-{number}")
        return Exchange(user=user, group=group, offer=offer, node=node)

    def _plain(self, number: int) -> Exchange:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:plain-{number}"),
            ]
        )
        request = x509.CertificateSigningRequestBuilder().subject_name(subject)
        text = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        user = f"system:bootstrap:p{time.monotonic_ns() % 10**9}-{number}"
        name = f"plain-{time.monotonic_ns()}-{number}"
        return Exchange(user=user, group=BOOTSTRAPPERS, offer=(name, text), node=None)

    def _file_all(self, storm: Storm, signer_name: str) -> None:
        def file(exchange: Exchange) -> None:
            exchange.uid = self._file(exchange, exchange.offer, signer_name)

        list(self._pool.map(file, storm.exchanges.values()))

    def _file(self, exchange: Exchange, filed: tuple[str, bytes], signer_name: str) -> str:
        name, request = filed
        body = {
            "metadata": {"name": name},
            "spec": {
                "signerName": signer_name,
                "usages": sorted(CLIENT_USAGES),
                "request": base64.b64encode(request).decode(),
            },
        }
        headers = {"Impersonate-User": exchange.user, "Impersonate-Group": exchange.group}
        response = self._session().post(
            self._workload.url + CSRS, json=body, headers=headers, timeout=60
        )
        response.raise_for_status()
        uid: str = response.json()["metadata"]["uid"]
        return uid

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            admin = self._workload.admin
            assert admin.certificate is not None
            session.trust_env = False
            session.verify = str(admin.authority)
            session.cert = (str(admin.certificate[0]), str(admin.certificate[1]))
        return session

    def _follow(self, storm: Storm) -> None:
        """Answer challenges and note certificates until all nodes have one."""
        for csr in self._watch():
            exchange = storm.exchanges.get(csr["spec"]["username"])
            if exchange is None:
                continue
            challenge = csr["metadata"].get("annotations", {}).get(CHALLENGE_ANNOTATION)
            if csr.get("status", {}).get("certificate"):
                exchange.certified = exchange.certified or time.monotonic()
                if len(storm.latencies()) == len(storm.exchanges):
                    storm.done.set()
                    return
            elif challenge and not exchange.challenged:
                exchange.challenged = True
                self._pool.submit(self._answer, exchange, challenge)

    def _answer(self, exchange: Exchange, challenge: str) -> None:
        assert exchange.node is not None
        self._file(exchange, exchange.node.answer(exchange.uid, challenge), CLIENT_SIGNER)

    def _watch(self) -> Iterator[Json]:
        url = self._workload.url + CSRS
        query = {"watch": "true", "timeoutSeconds": str(TIMEOUT)}
        with self._session().get(url, params=query, stream=True, timeout=TIMEOUT) as response:
            for line in response.iter_lines(chunk_size=None):
                yield json.loads(line)["object"]
