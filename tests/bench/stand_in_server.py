"""Answers the signer's requests from a store: HTTP/1.1 as far as the signer uses it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.bench.stand_in_store import Conflict, Json, Store, dump, patched, require_version

CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CAPI: Final = "/apis/cluster.x-k8s.io/v1beta2"

Answer = tuple[int, object]
"""Status and body."""
Control = Callable[[str, str], Answer]
"""Called with the method and the rest of a path below /bench/."""


class Server:
    """Answers requests from a store."""

    def __init__(self, control: Control | None = None) -> None:
        """Make a management cluster, controlled through `control`, or a workload cluster."""
        self.store = Store()
        self.calls: Counter[str] = Counter()
        """Requests for single objects."""
        self.connections = 0
        """Connections that are open now."""
        self._control = control

    def answer(
        self, method: str, target: str, body: Json, transport: asyncio.Transport
    ) -> Answer | None:
        """Return status and body; `None` for a watch, which stays open."""
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path.startswith("/bench/") and self._control is not None:
            return self._control(method, url.path.removeprefix("/bench/"))
        if method == "GET" and url.path.count("/") <= 3 and url.path.startswith("/apis/"):
            return self._discover(url.path)
        if url.path == "/api/v1/namespaces/default/services/kubernetes":
            return 200, {"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": "192.0.2.1"}}
        path, namespace, name, subresource = _split(url.path)
        if method == "GET" and not name:
            return self._list(path, query, transport)
        plural = path.rpartition("/")[2]
        if plural != "leases":  # A replica renews its Lease, whatever it issues.
            self.calls[f"{method} {plural}{'/' + subresource if subresource else ''}"] += 1
        try:
            return self._write(method, path, namespace, name, body)
        except Conflict:
            return 409, {"kind": "Status", "code": 409}

    def _discover(self, path: str) -> Answer:
        if self._control is None:
            return 404, {}
        if path == "/apis/cluster.x-k8s.io":
            return 200, {"preferredVersion": {"groupVersion": "cluster.x-k8s.io/v1beta2"}}
        if path == CAPI:
            kinds = {"Cluster": "clusters", "Machine": "machines", "MachinePool": "machinepools"}
            return 200, {"resources": [{"name": n, "kind": k} for k, n in kinds.items()]}
        return 404, {}

    def _list(
        self, path: str, query: Mapping[str, str], transport: asyncio.Transport
    ) -> Answer | None:
        if "watch" in query:
            transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.store.watch(path, int(query["resourceVersion"]), transport)
            seconds = int(query["timeoutSeconds"])
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self.store.end_watch, path, transport)
            return None
        items = list(self.store.objects.get(path, {}).values())
        start, limit = int(query.get("continue", "0")), int(query.get("limit", "0"))
        metadata = {"resourceVersion": str(self.store.version)}
        if limit and start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return 200, {"metadata": metadata, "items": items[start : start + limit or None]}

    def _write(self, method: str, path: str, namespace: str, name: str, body: Json) -> Answer:
        store = self.store
        if method == "POST":
            if namespace:
                body["metadata"]["namespace"] = namespace
            return 201, store.create(path, body)
        key = f"{namespace}/{name}" if namespace else name
        current = store.get(path, key)
        if current is None:
            return 404, {}
        match method:
            case "GET":
                return 200, current
            case "DELETE":
                require_version(current, body.get("preconditions") or {})
                store.delete(path, key)
                return 200, {}
            case "PUT":
                require_version(current, body["metadata"])
                kept = {k: current["metadata"][k] for k in ("uid", "creationTimestamp")}
                return 200, store.put(path, {**body, "metadata": {**body["metadata"], **kept}})
            case _:
                return 200, store.put(path, patched(current, body))


class Connection(asyncio.Protocol):
    """One connection of the signer."""

    def __init__(self, server: Server, *, delay: float) -> None:
        """Send each answer `delay` seconds later, as a distant server."""
        self._server = server
        self._delay = delay
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport
        self._server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 # theirs
        """See `asyncio.Protocol`."""
        self._server.connections -= 1

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
            length = 0
            for line in head[1:]:
                name, _, value = line.partition(":")
                if name.lower() == "content-length":
                    length = int(value)
            if len(self._buffer) < end + 4 + length:
                return
            content = bytes(self._buffer[end + 4 : end + 4 + length])
            del self._buffer[: end + 4 + length]
            method, target, _ = head[0].split(" ")
            body = json.loads(content) if content else {}
            answer = self._server.answer(method, target, body, self._transport)
            if answer is not None:
                self._send(*answer)

    def _send(self, status: int, body: object) -> None:
        content = dump(body)
        data = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content)
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._transport.write, data)
        else:
            self._transport.write(data)


def _split(path: str) -> tuple[str, str, str, str]:
    """Return collection path without namespace, namespace, name and subresource."""
    parts = path.strip("/").split("/")
    size = 2 if parts[0] == "api" else 3
    prefix, rest, namespace = parts[:size], parts[size:], ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    return "/" + "/".join([*prefix, plural]), namespace, unquote(name), subresource
