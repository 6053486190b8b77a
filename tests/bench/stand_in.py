"""A lean stand-in for the API servers of a management cluster and its workload clusters.

    python -m tests.bench.stand_in DIRECTORY

It shows the signer's own capacity: real API servers on the same machine are saturated first. It
stores what is written as the tests' API server in memory does (`tests/fakes/cluster.py`), and
answers each request in about 0.2 ms.

Nodes live in the same process, with software evidence that the signer verifies. `POST /bench/join`
and `/bench/renew` on the management cluster's port file an offer for each of them at once. When a
challenge is written, the node answers; when a certificate is written, the time is noted.
`GET /bench/result` returns the times and the requests of the current phase.
"""

import asyncio
import base64
import gc
import json
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from common.formats.strict_json import format_time
from common.names import (
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    CLIENT_USAGES,
    ENDORSEMENT_KEY_ANNOTATION,
)
from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import SECRETS, Resource
from tests.bench import attested_machines
from tests.bench.attested_machines import NODES
from tests.bench.software_node import SoftwareNode
from tests.bench.stand_in_server import CSRS, Connection, Server
from tests.fakes.cluster import Answer
from tests.fakes.cluster_objects import CLUSTERS, MACHINES, Object
from tests.fakes.tpm import EndorsementName
from tests.harness import kubeconfig, objects, pki
from tests.harness.controlplane import HOST

_BOOTSTRAPPERS: Final = ["system:bootstrappers", "system:authenticated"]
_BOOKMARK_SECONDS: Final = 60.0
_NODES: Final = ["system:nodes", "system:authenticated"]


class StormNode:
    """One node of a workload cluster, and the times of its exchange."""

    def __init__(
        self, server: Server, cluster: str, number: int, endorsement: EndorsementName
    ) -> None:
        self.name = f"node-{number}"
        self.machine = f"{cluster}-{self.name}"
        self.server = server
        self._software = SoftwareNode(
            self.name,
            f"bench://{cluster}/{self.name}",
            seed=f"{cluster}/{number}",
            endorsement=endorsement,
        )
        self.username = ""
        self.offered = self.challenged = self.certified = 0.0
        self._request: tuple[str, bytes] = ("", b"")
        self._uid = ""

    def register(self) -> Object:
        """Return the Machine."""
        registration = {ENDORSEMENT_KEY_ANNOTATION: self._software.registration()}
        spec = objects.Machine(self.name, annotations=registration)
        return objects.machine(
            self._software.provider_id.split("/")[2], spec, provider_id=self._software.provider_id
        )

    def prepare(self, phase: str) -> None:
        """Make the offer before the clock starts."""
        number = self.name.rpartition("-")[2]
        renewal = phase == "renew"
        self.username = f"system:node:{self.name}" if renewal else f"system:bootstrap:b{number:0>5}"
        self._request = self._software.offer(f"offer-{phase}-{self.name}")
        self.challenged = self.certified = 0.0

    def file_offer(self) -> None:
        """File the offer."""
        self.offered = time.monotonic()
        self._uid = self._file(self._request)["metadata"]["uid"]

    def written(self, csr: Object) -> None:
        """Answer a challenge; note a certificate."""
        if csr.get("status", {}).get("certificate"):
            self.certified = time.monotonic()
            return
        challenge = csr["metadata"].get("annotations", {}).get(CHALLENGE_ANNOTATION)
        if challenge and not self.challenged:
            self.challenged = time.monotonic()
            self._file(self._software.answer(self._uid, challenge))

    def _file(self, request: tuple[str, bytes]) -> Object:
        name, text = request
        renewal = self.username.startswith("system:node:")
        now = datetime.now(UTC)
        csr = {
            "metadata": {"name": name, "uid": str(uuid4()), "creationTimestamp": format_time(now)},
            "spec": {
                "signerName": CLIENT_SIGNER,
                "username": self.username,
                "groups": _NODES if renewal else _BOOTSTRAPPERS,
                "usages": sorted(CLIENT_USAGES),
                "request": base64.b64encode(text).decode(),
            },
        }
        self.server.cluster.put(CSRS, csr)
        return self.server.cluster.objects[f"{CSRS}/{name}"]


class Bench:
    """All servers, and the nodes of a storm."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.management = Server(self.control)
        self.workloads: dict[int, Server] = {}
        self.nodes: list[StormNode] = []
        self._by_name: dict[tuple[Server, str], StormNode] = {}
        self._create(POLICIES, "", {"metadata": {"name": "all", "generation": 1}, "spec": {}})
        for number, port in enumerate(config["workload_ports"]):
            self._add_cluster(f"cluster-{number}", port, config)

    def _add_cluster(self, name: str, port: int, config: Mapping[str, Any]) -> None:
        server = self.workloads[port] = Server()
        server.on_write = partial(self._written, server)
        cluster = objects.cluster(
            name,
            endpoint=f"https://{HOST}:{port}",
            annotations={"attestation.cluster.x-k8s.io/client-signer": CLIENT_SIGNER},
        )
        self._create(CLUSTERS, name, cluster)
        key = pki.rsa_key() if config["authority"] == "rsa" else pki.ec_key()
        pair = pki.Authority.make(name, key).pair
        authority = {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
        text = kubeconfig.with_token(
            f"https://{HOST}:{port}", Path(config["ca"]).read_bytes(), "token"
        )
        for purpose, data in (("ca", authority), ("kubeconfig", {"value": text})):
            secret = objects.secret(name, purpose, data)
            values = secret.pop("stringData")
            secret["data"] = {k: base64.b64encode(v.encode()).decode() for k, v in values.items()}
            self._create(SECRETS, name, secret)
        for number in range(config["nodes"]):
            node = StormNode(server, name, number, config["endorsement"])
            self.nodes.append(node)
            self._create(MACHINES, name, node.register())
        for number in range(config["nodes"], config["nodes"] + config["attested"]):
            self._add_attested(server, ClusterKey(namespace=name, name=name), number)

    def _add_attested(self, server: Server, cluster: ClusterKey, number: int) -> None:
        self._create(MACHINES, cluster.namespace, attested_machines.machine(cluster, number))
        key, node = attested_machines.claims(cluster, number)
        self._create(ENDORSEMENT_KEYS, "", key)
        self._create(ATTESTED_NODES, cluster.namespace, node)
        server.cluster.put(NODES, attested_machines.node(cluster, number))

    def _create(self, resource: Resource, namespace: str, body: Object) -> None:
        self.management.cluster.put(resource.collection_path(namespace), body)

    def _written(self, server: Server, key: str, csr: Object) -> None:
        if key.startswith(CSRS):
            node = self._by_name.get((server, csr["spec"]["username"]))
            if node is not None:
                node.written(csr)

    def control(self, method: str, what: str) -> Answer:
        """Start a phase, or return what it gave."""
        if what == "cut":
            for server in self.workloads.values():
                server.cut()
            return 200, {}
        if method == "POST":
            for node in self.nodes:
                node.prepare(what)
            self._by_name = {(n.server, n.username): n for n in self.nodes}
            for server in (self.management, *self.workloads.values()):
                server.calls.clear()
            for node in self.nodes:
                node.file_offer()
            return 200, {}
        done = [node for node in self.nodes if node.certified]
        calls: Counter[str] = Counter()
        servers = (self.management, *self.workloads.values())
        for server in servers:
            calls.update(server.calls)
        return 200, {
            "watches": sum(s.open_watches() for s in self.workloads.values()),
            "connections": sum(s.connections for s in self.workloads.values()),
            "filed": min((n.offered for n in self.nodes), default=0.0),
            "latencies": [node.certified - node.offered for node in done],
            "last": max((node.certified for node in done), default=0.0),
            "nodes": len(self.nodes),
            "calls": calls,
        }


async def serve(directory: Path) -> None:
    """Serve until killed."""
    config = json.loads((directory / "config.json").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*config["pair"])
    bench = Bench(config)
    silent = config["workload_ports"][: config["silent"]]
    loop = asyncio.get_running_loop()
    servers = {config["management_port"]: bench.management, **bench.workloads}
    # They take connections as far as the kernel does, and are open until the process ends.
    silent_sockets = [socket.create_server((HOST, port), backlog=4096) for port in silent]
    for port, server in servers.items():
        if port in silent:
            continue
        connect = partial(Connection, server, delay=config["delay"])
        await loop.create_server(connect, HOST, port, ssl=context)
    # A search for garbage in the objects of a large fleet would stop all servers for seconds.
    gc.freeze()
    (directory / "ready").touch()
    assert len(silent_sockets) == len(silent)
    while True:
        await asyncio.sleep(_BOOKMARK_SECONDS)
        for server in servers.values():
            server.send_bookmarks()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
