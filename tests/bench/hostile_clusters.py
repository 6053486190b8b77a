"""API servers of hostile workload clusters, all in one separate process.

    python -m tests.bench.hostile_clusters DIRECTORY

Reads DIRECTORY/clusters.json: port, certificate and behavior of each. Writes DIRECTORY/ready when
all of them listen. Each behaves well enough that the signer watches it, and then:

silent      answers reads, and no write ever
flood       one node files serving requests for a foreign address, with 255 KiB of annotations each
uncounted   CSRs of 2 MiB each, in fields that the requester does not choose
fat         answers of 15 MiB that consist of tiny objects, to every list and every write
drip        an event of 3 MiB without end, in HTTP chunks of one byte, again and again
events      Nodes and auto-approving bindings that change as fast as the signer reads
authority   an honest node, in a cluster whose CA key takes OpenSSL seconds to check
service     an honest node that joins and files serving requests, in a cluster whose `kubernetes`
            Service has an address of 4,096 letters
"""

import base64
import json
import os
import socket
import ssl
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from common.formats.pem import encode_block
from common.names import (
    BUILTIN_SERVING_SIGNER,
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    CLIENT_USAGES,
    NODE_USER_PREFIX,
    PEM_REQUEST,
    SERVING_USAGES,
)
from common.requests.csr import node_subject
from signer.kinds.resources import ADMISSION_POLICIES
from tests.bench.software_node import SoftwareNode
from tests.harness.controlplane import HOST

Json = dict[str, Any]

CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
NODES: Final = "/api/v1/nodes"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_FAT: Final = (
    b'{"metadata":{"resourceVersion":"1"},"items":[],"junk":[' + b"{},[]," * 2_500_000 + b"0]}"
)
_DRIP_BYTES: Final = 3 << 20
_DRIP: Final = b"1\r\nx\r\n" * (16 << 10)
_CHANGES: Final = 2000
_LIST_LIMIT: Final = 8
_FLOOD: Final = 1000
_UNCOUNTED: Final = 50
_WAITING: Final = 200
_READ_SECONDS: Final = 300
LETTERS: Final = "".join(chr(0x4E00 + 37 * number % 20_000) for number in range(4096))
"""A name without an end in IDNA: folding all of it takes seconds."""
_AUTO_APPROVE: Final = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"


class Cluster:
    """State and behavior of one cluster."""

    def __init__(self, behavior: str, node: Mapping[str, str]) -> None:
        self.behavior = behavior
        self.changed = Event()
        self.lock = Lock()
        self.versions = count(1)
        self.decided: set[str] = set()
        self._node = node
        self._exchanges: dict[str, SoftwareNode] = {}
        """By the name of the offer; all are the same TPM."""
        self.filed: dict[str, Json] = {}
        """CSRs of the honest node."""
        self.events: list[Json] = []
        self._request = base64.b64encode(self._serving_request("mallory")).decode()
        self._stopped = Event()

    def csrs(self) -> Iterator[Json]:
        """Yield the pending CSRs."""
        sizes = {"flood": _FLOOD, "uncounted": _UNCOUNTED, "silent": _WAITING, "fat": _WAITING}
        for number in range(sizes.get(self.behavior, 0)):
            csr = self._serving_csr(number)
            if csr["metadata"]["name"] not in self.decided:
                yield csr
        yield from list(self.filed.values())

    def write(self, name: str, patch: object) -> Json:
        """Apply a patch as far as the signer reads the result."""
        if "status" in repr(patch):
            self.decided.add(name)
            self.filed.pop(name, None)
        csr = self.filed.get(name) or self._serving_csr(0, name)
        annotations = patch["metadata"].get("annotations", {}) if isinstance(patch, dict) else {}
        csr["metadata"] |= {"resourceVersion": str(next(self.versions))}
        csr["metadata"]["annotations"] = csr["metadata"].get("annotations", {}) | annotations
        if name in self._exchanges and CHALLENGE_ANNOTATION in annotations:
            node = self._exchanges.pop(name)
            self.file(node.answer(csr["metadata"]["uid"], annotations[CHALLENGE_ANNOTATION]))
        return csr

    def file(self, filed: tuple[str, bytes]) -> None:
        """File a request of the honest node."""
        name, request = filed
        csr = self._csr(name, request, CLIENT_SIGNER, "system:bootstrap:abcdef", CLIENT_USAGES)
        csr["spec"]["groups"] = ["system:bootstrappers", "system:authenticated"]
        self._file(csr)

    def _file(self, csr: Json) -> None:
        with self.lock:
            self.filed[csr["metadata"]["name"]] = csr
            self.events.append({"type": "ADDED", "object": csr})
        self.changed.set()

    def node(self) -> SoftwareNode:
        """Return the honest node, for one exchange."""
        return SoftwareNode(self._node["name"], self._node["providerID"], seed=self._node["seed"])

    def file_offers(self) -> None:
        """File an offer every second: the signer needs the authority for each answer."""
        while not self._stopped.wait(1.0):
            offer = uuid.uuid4().hex
            self._exchanges[offer] = self.node()
            self.file(self._exchanges[offer].offer(offer))

    def file_serving_requests(self) -> None:
        """File a serving request of the honest node every second."""
        while not self._stopped.wait(1.0):
            name = f"serving-{next(self.versions)}"
            request = self._serving_request(self._node["name"])
            username = NODE_USER_PREFIX + self._node["name"]
            csr = self._csr(name, request, BUILTIN_SERVING_SIGNER, username, SERVING_USAGES)
            csr["spec"]["groups"] = ["system:nodes", "system:authenticated"]
            self._file(csr)

    def _serving_csr(self, number: int, name: str = "") -> Json:
        name = name or f"csr-{number}"
        request = base64.b64decode(self._request)
        csr = self._csr(
            name, request, BUILTIN_SERVING_SIGNER, "system:node:mallory", SERVING_USAGES
        )
        csr["spec"]["groups"] = ["system:nodes", "system:authenticated"]
        if self.behavior == "flood":
            csr["metadata"]["annotations"] = {"a": "x" * (255 << 10)}
        if self.behavior == "uncounted":
            csr["spec"]["extra"] = {str(n): ["x"] for n in range(40_000)}
            csr["status"] = {
                "conditions": [{"type": "A", "reason": "r", "message": "x" * (1 << 20)}]
            }
        return csr

    @staticmethod
    def _serving_request(node_name: str) -> bytes:
        """Request a name as a kubelet does."""
        names = x509.SubjectAlternativeName([x509.DNSName("victim.example")])
        request = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(node_subject(node_name))
            .add_extension(names, critical=False)
            .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        )
        return encode_block(PEM_REQUEST, request.public_bytes(Encoding.DER))

    def _csr(
        self, name: str, request: bytes, signer: str, username: str, usages: frozenset[str]
    ) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
                "resourceVersion": "1",
                "creationTimestamp": now,
            },
            "spec": {
                "signerName": signer,
                "username": username,
                "usages": sorted(usages),
                "request": base64.b64encode(request).decode(),
            },
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # theirs
        """Log nothing."""

    def do_GET(self) -> None:  # theirs
        """Answer a list, a watch, or the `kubernetes` service."""
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if "watch" in query:
            self._watch(url.path)
        elif self.server.cluster.behavior == "fat" and url.path in {NODES, BINDINGS}:
            self._send(_FAT)
        elif url.path in {CSRS, NODES, BINDINGS}:
            self._send_json(self._page(url.path, int(query.get("continue", "0"))))
        elif url.path.startswith(CSRS):
            csr = self.server.cluster.filed.get(url.path.rpartition("/")[2])
            self._send_json(csr or {}, status=200 if csr else 404)
        elif url.path.startswith(ADMISSION_POLICIES.collection_path()):
            self._send_json({}, status=404)  # nothing is ended
        else:
            address = LETTERS if self.server.cluster.behavior == "service" else "192.0.2.1"
            self._send_json({"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": address}})

    def do_PATCH(self) -> None:  # theirs
        """Take a write."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behavior = self.server.cluster.behavior
        if behavior == "silent":
            self.rfile.read(1)  # returns when the signer hangs up
        elif behavior == "fat":
            self._send(_FAT)
        else:
            name = self.path.removeprefix(CSRS + "/").partition("/")[0]
            self._send_json(self.server.cluster.write(name, body))

    def do_POST(self) -> None:  # theirs
        """Take an Event."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send_json({}, status=201)

    def do_DELETE(self) -> None:  # theirs
        """Take a deletion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send_json({})

    def _page(self, path: str, start: int) -> Json:
        items: list[Json] = []
        if path == CSRS:
            items = list(self.server.cluster.csrs())[start : start + _LIST_LIMIT]
        metadata = {"resourceVersion": str(next(self.server.cluster.versions))}
        if len(items) == _LIST_LIMIT:
            metadata["continue"] = str(start + _LIST_LIMIT)
        return {"metadata": metadata, "items": items}

    def _watch(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cluster = self.server.cluster
        if cluster.behavior == "drip" and path == CSRS:
            self._chunk(b'{"type":"ADDED","object":{"metadata":{"x":"')
            for _ in range(_DRIP_BYTES // (16 << 10)):
                self.wfile.write(_DRIP)
            self.close_connection = True
        elif cluster.behavior == "events" and path != CSRS:
            self._send_changes(binding=path == BINDINGS)
        else:
            self._send_events(path)

    def _send_changes(self, *, binding: bool) -> None:
        """Send the same events again and again; each changes what the signer keeps."""
        lines = []
        for number in range(2 * _CHANGES):
            metadata = {"name": f"name-{number % _CHANGES}", "resourceVersion": "1"}
            body: Json = {"metadata": metadata, "spec": {"providerID": f"bench://{number}"}}
            if binding:
                body = {"metadata": metadata, "roleRef": {"name": _AUTO_APPROVE}}
            deleted = binding and number >= _CHANGES
            event = {"type": "DELETED" if deleted else "ADDED", "object": body}
            lines.append(json.dumps(event).encode() + b"\n")
        while True:
            self._chunk(b"".join(lines))

    def _send_events(self, path: str) -> None:
        cluster, sent = self.server.cluster, 0
        while path == CSRS:
            for event in cluster.events[sent:]:
                self._chunk(json.dumps(event).encode() + b"\n")
                sent += 1
            cluster.changed.wait()
            cluster.changed.clear()
        # Until the signer hangs up.
        self.rfile.read(1)

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _send_json(self, body: Json, *, status: int = 200) -> None:
        self._send(json.dumps(body).encode(), status=status)

    def _send(self, content: bytes, *, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, pair: tuple[str, str], cluster: Cluster) -> None:
        super().__init__((HOST, port), _Handler)
        self.cluster = cluster
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*pair)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 # theirs
        """Shake hands on the thread of the connection."""
        request.settimeout(_READ_SECONDS)
        with suppress(OSError):
            super().finish_request(
                self._context.wrap_socket(request, server_side=True), client_address
            )

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: the signer hangs up."""


def main(directory: Path) -> None:
    """Serve all clusters until killed."""
    # In production they would not share the CPUs of the signer.
    os.nice(15)
    for entry in json.loads((directory / "clusters.json").read_text()):
        cluster = Cluster(entry["behavior"], entry["node"])
        server = _Server(entry["port"], tuple(entry["pair"]), cluster)
        Thread(target=server.serve_forever, daemon=True).start()
        if cluster.behavior in {"authority", "service"}:
            (directory / cluster.behavior).write_text(cluster.node().registration())
            Thread(target=cluster.file_offers, daemon=True).start()
        if cluster.behavior == "service":
            Thread(target=cluster.file_serving_requests, daemon=True).start()
    (directory / "ready").touch()
    Event().wait()


if __name__ == "__main__":
    socket.setdefaulttimeout(_READ_SECONDS)
    main(Path(sys.argv[1]))
