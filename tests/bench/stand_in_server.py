"""Answers the signer's requests from a cluster in memory: HTTP/1.1 as far as the signer uses it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from signer.kinds.resources import CSRS as CSR_RESOURCE
from signer.kube.transport.client import Request
from tests.fakes.cluster import Answer, FakeCluster, encoded
from tests.fakes.cluster_objects import Object, Place, Refused

CSRS: Final = CSR_RESOURCE.collection_path()
Control = Callable[[str, str], Answer]
"""Called with the method and the rest of a path below /bench/."""


class Server:
    """Answers requests from a cluster."""

    def __init__(self, control: Control | None = None) -> None:
        """Make a management cluster, controlled through `control`, or a workload cluster."""
        self.cluster = FakeCluster(now=_now, on_change=self._changed)
        self.calls: Counter[str] = Counter()
        """Requests for single objects."""
        self.connections = 0
        """Connections that are open now."""
        self.on_write: Callable[[str, Object], None] = lambda _key, _body: None
        self._control = control
        self._watchers: list[tuple[Place, asyncio.Transport]] = []
        service = {"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": "192.0.2.1"}}
        self.cluster.put("/api/v1/namespaces/default/services", service)

    def answer(
        self,
        method: str,
        target: str,
        body: Any,  # noqa: ANN401 # JSON
        transport: asyncio.Transport,
    ) -> Answer | None:
        """Return status and body; `None` for a watch, which stays open."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        if url.path.startswith("/bench/") and self._control is not None:
            return self._control(method, url.path.removeprefix("/bench/"))
        if "watch" in query:
            self._watch(self.cluster.place(url.path), query, transport)
            return None
        self._count(method, url.path)
        self.cluster.requests.clear()
        media = "application/json-patch+json" if isinstance(body, list) else "application/json"
        request = Request(method=method, path=url.path, query=query, body=body, media=media)
        return self.cluster.answer(request)

    def _count(self, method: str, path: str) -> None:
        """Count a request for a single object. A replica renews its Lease, whatever it issues."""
        try:
            place = self.cluster.place(path)
        except Refused:  # discovery
            return
        plural = place.collection.rpartition("/")[2]
        if plural != "leases" and (place.name or method != "GET"):
            subresource = f"/{place.subresource}" if place.subresource else ""
            self.calls[f"{method} {plural}{subresource}"] += 1

    def open_watches(self) -> int:
        """Return the number of watches that are open now."""
        return sum(not transport.is_closing() for _, transport in self._watchers)

    def cut(self) -> None:
        """End the connection of every watch."""
        for _, transport in self._watchers:
            transport.abort()

    def send_bookmarks(self) -> None:
        """Send a bookmark to every watch, as an API server does about each minute."""
        version = str(self.cluster.version)
        chunk = _chunk("BOOKMARK", {"metadata": {"resourceVersion": version}})
        for _, transport in self._watchers:
            if not transport.is_closing():
                transport.write(chunk)

    def _watch(self, place: Place, query: dict[str, str], transport: asyncio.Transport) -> None:
        """Send the changes after a version, and all later ones until the watch ends."""
        transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number, kind, key, body in self.cluster.changes:
            if number > int(query["resourceVersion"]) and place.contains(key):
                transport.write(_chunk(kind, body))
        watcher = place, transport
        self._watchers.append(watcher)
        loop = asyncio.get_running_loop()
        loop.call_later(int(query["timeoutSeconds"]), self._end, watcher)

    def _end(self, watcher: tuple[Place, asyncio.Transport]) -> None:
        """End a watch; its connection is used again."""
        if watcher in self._watchers:
            self._watchers.remove(watcher)
            if not watcher[1].is_closing():
                watcher[1].write(b"0\r\n\r\n")

    def _changed(self, kind: str, key: str, body: Object) -> None:
        self._watchers = [watcher for watcher in self._watchers if not watcher[1].is_closing()]
        chunk = b""
        for place, transport in self._watchers:
            if place.contains(key):
                chunk = chunk or _chunk(kind, body)
                transport.write(chunk)
        self.on_write(key, body)


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

    def _send(self, status: int, body: Object | bytes) -> None:
        content = encoded(body)
        # A signer trusts no clock that it has compared with no API server's.
        date = formatdate(usegmt=True).encode()
        head = b"HTTP/1.1 %d X\r\nDate: %s\r\nContent-Length: %d\r\n\r\n"
        data = head % (status, date, len(content)) + content
        if self._delay:
            asyncio.get_running_loop().call_later(self._delay, self._transport.write, data)
        else:
            self._transport.write(data)


def _chunk(kind: str, body: Object) -> bytes:
    line = encoded({"type": kind, "object": body}) + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
