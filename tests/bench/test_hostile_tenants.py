"""What eleven hostile clusters of four tenants cost the nodes of ten honest clusters.

    make bench ARGS=tests/bench/test_hostile_tenants.py

The honest clusters and the management cluster are real API servers. The hostile ones are scripted
(`hostile_clusters.py`), and their tenants also write what tenants may write on the management
cluster, once or every five seconds. Nodes join all the time, at a rate that leaves the machine idle
without the attack.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from typing import Any, Final

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from prometheus_client.parser import text_string_to_metric_families

from common.formats.pem import encode_block
from common.names import CHALLENGE_ANNOTATION, CLIENT_SIGNER, ENDORSEMENT_KEY_ANNOTATION
from tests.bench.hostile_clusters import CSRS, LETTERS
from tests.bench.software_node import SoftwareNode, csr_body
from tests.controlplane import pins, provide
from tests.harness import kubeconfig, objects, pki, process
from tests.harness.controlplane import HOST
from tests.harness.management import ManagementCluster
from tests.harness.signer import OPT_IN, Signer
from tests.harness.workload import WorkloadCluster

HONEST: Final = 10
PHASE_SECONDS: Final = 60
JOIN_INTERVAL: Final = 2.0
"""Seconds between two joins in one cluster: with ten clusters, five joins a second."""
JOIN_TIMEOUT: Final = 120
MAX_RATIO: Final = 2.0
MAX_MEBIBYTES: Final = 1024
INFRASTRUCTURE_KINDS: Final = 300
CA_BITS: Final = 7470
HOSTILE: Final = {
    "hostile-a": ("silent", "silent", "silent", "silent"),
    "hostile-b": ("flood", "uncounted", "fat"),
    "hostile-c": ("drip", "events", "authority"),
    "hostile-d": ("service",),
}
"""Behaviors of the clusters of each tenant."""
EDIT_INTERVAL: Final = 5.0
ADDRESSES: Final = 256
"""Addresses of a Machine, each of as many letters: the most that Cluster API allows."""
COMPRESSED_KEYS: Final = 1500
"""Endorsement keys in an annotation of 250 KiB."""
POISON: Final = (
    'a: "\\U00110000"\n',
    'a: "\\UFFFFFFFF"\n',
    f"%YAML 1.{'9' * 5000}\n---\na: b\n",
    "[" * 2000 + "\n",
    "- {a: [b, c], d: e}\n" * 6500,
)
"""Invalid kubeconfig Secrets: bad characters and numbers, deep nesting, and 128 KiB of YAML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """The part of a fleet that `Signer` needs."""

    management: ManagementCluster


@dataclass(slots=True)
class HonestCluster:
    """A workload cluster whose only node joins repeatedly."""

    name: str
    workload: WorkloadCluster
    session: requests.Session = field(default_factory=requests.Session)
    latencies: list[float] = field(default_factory=list)

    @property
    def node(self) -> SoftwareNode:
        """Return its node: the same TPM each time, like a Machine that is installed again."""
        return SoftwareNode("node-1", f"bench://{self.name}/node-1", seed=self.name)

    def register(self, management: ManagementCluster) -> None:
        """Create the Cluster and the Machine, and make a bootstrap token."""
        management.create_namespace(self.name)
        register_cluster(management, self.name, self.name, self.workload.url)
        management.store_kubeconfig(self.name, self.name, self.workload.signer_kubeconfig())
        management.store_authority(self.name, self.name, self.workload.authority.pair)
        machine = objects.Machine(
            "node-1",
            provider_id=self.node.provider_id,
            annotations={ENDORSEMENT_KEY_ANNOTATION: self.node.registration()},
        )
        management.create_machine(self.name, self.name, machine)
        self.session.trust_env = False
        self.session.verify = str(self.workload.admin.authority)
        self.session.headers["Authorization"] = f"Bearer {self.workload.bootstrap_token()}"

    def join_for(self, seconds: float) -> Sequence[float]:
        """Let the node join at the interval; return the latency of each join."""
        self.latencies = []
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            self.latencies.append(self.join())
            time.sleep(max(0.0, JOIN_INTERVAL - (time.monotonic() - began)))
        return self.latencies

    def join(self) -> float:
        """Run one exchange; return the seconds from offer to certificate."""
        node = self.node
        offer = node.offer(f"offer-{time.monotonic_ns()}")
        began = time.monotonic()
        deadline = began + JOIN_TIMEOUT
        uid = self._file(offer)
        challenged = self._wait(offer[0], "challenge", deadline)
        if challenged is not None:
            answer = node.answer(uid, challenged)
            self._file(answer)
            self._wait(answer[0], "certificate", deadline)
        return time.monotonic() - began

    def _file(self, filed: tuple[str, bytes]) -> str:
        url = self.workload.url + CSRS
        response = self.session.post(url, json=csr_body(filed, CLIENT_SIGNER), timeout=60)
        response.raise_for_status()
        uid: str = response.json()["metadata"]["uid"]
        return uid

    def _wait(self, name: str, what: str, deadline: float) -> str | None:
        """Watch a CSR until it has a challenge or a certificate; `None` when time is up."""
        query = {"watch": "true", "fieldSelector": f"metadata.name={name}"}
        while (left := deadline - time.monotonic()) > 0:
            query["timeoutSeconds"] = str(max(1, int(left)))
            with self.session.get(
                self.workload.url + CSRS, params=query, stream=True, timeout=60
            ) as response:
                for line in response.iter_lines(chunk_size=None):
                    value = _value(json.loads(line)["object"], what)
                    if value:
                        return value
        return None


def _value(csr: dict[str, Any], what: str) -> str:
    conditions = {c["type"]: c["reason"] for c in csr.get("status", {}).get("conditions", [])}
    assert conditions.keys() <= {"Approved"}, conditions
    if what == "challenge":
        return str(csr["metadata"].get("annotations", {}).get(CHALLENGE_ANNOTATION, ""))
    return str(csr.get("status", {}).get("certificate", ""))


def register_cluster(management: ManagementCluster, namespace: str, name: str, url: str) -> None:
    """Create a Cluster that has opted in."""
    management.create_cluster(namespace, name, endpoint=url, annotations=OPT_IN)


class HostileTenants:
    """The hostile tenants: their API servers, and what they write on the management cluster."""

    def __init__(self, management: ManagementCluster, directory: Path, stack: ExitStack) -> None:
        self._management = management
        self._directory = directory
        self._authority = pki.Authority.make("hostile", pki.ec_key())
        self._stack = stack
        self.names = [(tenant, f"{behavior}-{n}") for tenant, behavior, n in _hostile()]

    def attack(self) -> None:
        """Start everything at once."""
        directory = self._directory
        directory.mkdir()
        files = [str(directory / "server.crt"), str(directory / "server.key")]
        pair = self._authority.server(HOST)
        for file, content in zip(files, (pair.certificate, pair.key), strict=True):
            Path(file).write_bytes(content)
        entries = [
            {
                "behavior": behavior,
                "port": process.free_port(),
                "pair": files,
                "node": {
                    "name": "node-1",
                    "providerID": f"bench://{tenant}/node-1",
                    "seed": tenant,
                },
            }
            for tenant, behavior, _ in _hostile()
        ]
        (directory / "clusters.json").write_text(json.dumps(entries))
        argv = [sys.executable, "-m", "tests.bench.hostile_clusters", str(directory)]
        log = directory / "hostile.log"
        running = self._stack.enter_context(process.running(argv, log=log))
        ready = (directory / "ready").exists
        process.wait_until_ready(running, ready, what="the hostile clusters listen", log=log)
        for tenant in HOSTILE:
            self._management.create_namespace(tenant)
        for (tenant, name), entry in zip(self.names, entries, strict=True):
            self._register(tenant, name, f"https://{HOST}:{entry['port']}")
        self._edit_management()
        stopped = Event()
        self._stack.callback(stopped.set)
        Thread(target=self._edit_again, args=(stopped,), daemon=True).start()

    def _register(self, tenant: str, name: str, url: str) -> None:
        # Clusters that share an authority get no certificate, so each has its own.
        pair = pki.Authority.make("hostile", pki.ec_key()).pair
        behavior = name.partition("-")[0]
        if behavior in {"authority", "service"}:
            if behavior == "authority":
                key = rsa.generate_private_key(65537, CA_BITS)
                pair = pki.Authority.make("hostile", key).pair
            registration = (self._directory / behavior).read_text()
            machine = objects.Machine(
                "node-1",
                provider_id=f"bench://{tenant}/node-1",
                annotations={ENDORSEMENT_KEY_ANNOTATION: registration},
            )
            self._management.create_machine(tenant, name, machine)
        self._management.store_authority(tenant, name, pair)
        text = kubeconfig.with_token(url, self._authority.pair.certificate, "token")
        self._management.store_kubeconfig(tenant, name, text)
        register_cluster(self._management, tenant, name, url)

    def _edit_management(self) -> None:
        """Write poisoned Secrets, and Machines of many infrastructure kinds."""
        management = self._management
        for number, text in enumerate(POISON):
            name = f"poison-{number}"
            register_cluster(management, "hostile-c", name, "https://192.0.2.1:6443")
            management.store_kubeconfig("hostile-c", name, text)
        for number in range(INFRASTRUCTURE_KINDS):
            machine = objects.Machine(f"kind-{number}")
            body = objects.machine("poison-0", machine, provider_id=f"bench://kind/{number}")
            body["spec"]["infrastructureRef"]["kind"] = f"Kind{number}"
            management.create_object("hostile-c", body)
        for tenant in HOSTILE:
            management.create_machine(tenant, "poison-0", objects.Machine("edited"))

    def _edit_again(self, stopped: Event) -> None:
        """Change what is slow to read, one Machine of each tenant at a time."""
        path = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/edited"
        keys = "".join(compressed_key() for _ in range(COMPRESSED_KEYS))
        for version in count():
            for tenant in HOSTILE:
                machine = path.format(tenant)
                names = [f"{LETTERS[n : n + 250]}{version}" for n in range(ADDRESSES)]
                addresses = [{"type": "InternalDNS", "address": name} for name in names]
                status = {"status": {"addresses": addresses}}
                self._management.admin.patch(f"{machine}/status", status)
                annotations = {ENDORSEMENT_KEY_ANNOTATION: f"{keys}{' ' * (version % 100)}"}
                self._management.admin.patch(machine, {"metadata": {"annotations": annotations}})
            if stopped.wait(EDIT_INTERVAL):
                return


def compressed_key() -> str:
    """Return a new public key whose point OpenSSL has to compute."""
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    point = key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    prefix = bytes.fromhex("3046301006072a8648ce3d020106052b81040022033200")
    return encode_block("PUBLIC KEY", prefix + point).decode()


def _hostile() -> Iterator[tuple[str, str, int]]:
    for tenant, behaviors in HOSTILE.items():
        for number, behavior in enumerate(behaviors):
            yield tenant, behavior, number


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stop everything that was started."""
    with ExitStack() as started:
        yield started


def measure(clusters: Sequence[HonestCluster], seconds: float) -> list[float]:
    """Let the nodes of all clusters join, and return all latencies, sorted."""
    with ThreadPoolExecutor(len(clusters)) as pool:
        latencies = list(pool.map(lambda cluster: cluster.join_for(seconds), clusters))
    return sorted(latency for each in latencies for latency in each)


def start(directory: Path, stack: ExitStack) -> tuple[ManagementCluster, list[HonestCluster]]:
    """Start the control planes."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    assets = provide.kubernetes(version, provide.ALL)
    management = ManagementCluster("management", directory / "management", assets)
    clusters = [
        HonestCluster(
            f"honest-{n}", WorkloadCluster(f"honest-{n}", directory / f"honest-{n}", assets)
        )
        for n in range(HONEST)
    ]
    for server in (management, *(cluster.workload for cluster in clusters)):
        stack.callback(server.stop)
        server.start()
    for cluster in clusters:
        cluster.register(management)
    return management, clusters


def test_hostile_tenants(tmp_path: Path, stack: ExitStack) -> None:
    """Joins take at most twice as long, in 1 GiB, and each hostile tenant is named."""
    management, clusters = start(tmp_path, stack)
    signer = Signer(Management(management=management), tmp_path / "signer", policy={})
    stack.enter_context(signer)
    signer.wait_until_ready()
    measure(clusters, 5)
    without = measure(clusters, PHASE_SECONDS)
    tenants = HostileTenants(management, tmp_path / "hostile", stack)
    tenants.attack()
    during = measure(clusters, PHASE_SECONDS)
    mebibytes = peak_mebibytes(signer.pid)
    report(without, during, mebibytes)
    unnamed = {tenant for tenant in HOSTILE if tenant not in named_in_metrics(signer)}
    # What the tenant of a slow name does is cheap, so no limit stops it.
    unlogged = HOSTILE.keys() - {"hostile-d"} - named_in_log(signer)
    assert (unnamed, unlogged) == (set(), set())
    assert mebibytes <= MAX_MEBIBYTES
    assert p95(during) <= MAX_RATIO * p95(without)


def p95(latencies: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(latencies, n=20)[-1]


def report(without: Sequence[float], during: Sequence[float], mebibytes: float) -> None:
    """Print the table."""
    lines = [f"{'From offer to certificate':34}{'joins':>7}{'p50':>9}{'p95':>9}{'max':>9}"]
    for name, values in (("without hostile clusters", without), ("with eleven of them", during)):
        row = f"  {name:32}{len(values):>7}{quantiles(values, n=2)[0]:>8.3f}s"
        lines.append(f"{row}{p95(values):>8.3f}s{values[-1]:>8.3f}s")
    lines.append(f"  p95 ratio {p95(during) / p95(without):.2f} (goal: {MAX_RATIO:.2f})")
    lines.append(f"  peak memory {mebibytes:.0f} MiB (goal: {MAX_MEBIBYTES})")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def peak_mebibytes(pid: int) -> float:
    """Return the peak of a process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def named_in_metrics(signer: Signer) -> set[str]:
    """Return the namespaces in the labels of the metrics about requests."""
    return {
        sample.labels.get("namespace") or sample.labels.get("cluster", "").partition("/")[0]
        for family in text_string_to_metric_families(signer.ask("/metrics").text)
        for sample in family.samples
    }


def named_in_log(signer: Signer) -> set[str]:
    """Return the namespaces that log lines above level info name."""
    return {
        line.get("namespace") or str(line.get("cluster", "")).partition("/")[0]
        for line in signer.lines
        if line["level"] != "info"
    }
