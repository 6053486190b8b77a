"""A relay between the signer and an API server: counts, stops and changes requests.

The relay passes all other requests of the signer on unchanged, watches included. Client
certificates end at the relay, so it uses a certificate with the same identity.
"""

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from tests.harness import pki
from tests.harness.controlplane import HOST, ApiServer

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_CHUNK = 65536


@dataclass(slots=True)
class Fault:
    """A fault that happens once, at the n-th write that any relay with this fault passes on.

    Events, the conditions of Machines, EndorsementKeyRequests and Leases are not counted: the
    signer writes them on threads of their own, between any two of the other writes.
    """

    at_write: int
    before: bool
    """Whether the API server does not receive the write, or its answer is lost."""
    happen: Callable[[], None]
    only: str = ""
    """A regular expression: other writes, as method and path, are not counted."""
    happened: bool = False
    seen: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def count(self, method: str, path: str) -> bool:
        """Count a write. Return whether the fault applies to it."""
        if re.search("/events$|/machines/|/endorsementkeyrequests|/leases", path):
            return False
        if not re.search(self.only, f"{method} {path}"):
            return False
        with self._lock:
            self.seen.append(f"{method} {path}")
            return len(self.seen) == self.at_write

    def strike(self) -> None:
        """Cause the fault."""
        self.happen()
        self.happened = True


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ApiRelay"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # theirs
        """Say nothing."""

    def setup(self) -> None:
        """Record the connection, and end its handshake."""
        self.request.do_handshake()
        super().setup()
        self.server.connected(self.connection)

    def finish(self) -> None:
        """Forget the connection."""
        self.server.disconnected(self.connection)
        super().finish()

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.path))
        hidden = self.server.unanswered
        if self.server.away or (hidden and re.search(hidden, f"{self.command} {self.path}")):
            self.close_connection = True
            return
        if "watch=true" in self.path and self.server.expire(self):
            return
        time.sleep(self.server.latency())
        fault = self.server.fault if self.command in WRITES else None
        struck = fault is not None and fault.count(self.command, self.path)
        if fault is not None and struck and fault.before:
            fault.strike()
            self.close_connection = True
            return
        with self.server.upstream() as upstream:
            upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
            response = upstream.getresponse()
            if fault is not None and struck:
                response.read()
                fault.strike()
                self.close_connection = True
                return
            self._give_back(response)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the header `Date`."""
        return super().date_time_string((timestamp or time.time()) + self.server.ahead)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass  # noqa: N815 # theirs

    def _give_back(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.headers.get("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while chunk := response.read1(_CHUNK):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class ApiRelay(ThreadingHTTPServer):
    """A relay to one API server; `url` is the address of the relay."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, server: ApiServer, directory: Path, client: pki.Pair | None) -> None:
        super().__init__((HOST, 0), _Passing)
        directory.mkdir(parents=True)
        self._directory = directory
        self.fault: Fault | None = None
        self.away = False
        """Whether no request is answered; `cut` ends those in progress."""
        self.ahead = 0.0
        """By how many seconds the clock of the API server seems to be ahead."""
        self.unanswered = ""
        """A regular expression: other requests that are not answered, as method and path."""
        self.latency: Callable[[], float] = float
        """Returns for how many seconds to hold a request before it is passed on."""
        self.requests: list[tuple[str, str]] = []
        self._to = urlsplit(server.url)
        self._expired: dict[str, bool] = {}
        self._connections: set[socket.socket] = set()
        authority = server.authority
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(*_files(directory, "server", authority.server(HOST)))
        # Each connection's thread does its handshake: one slow client must not delay the others.
        self.socket = server_context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self._context = ssl.create_default_context(cadata=authority.pair.certificate.decode())
        if client is not None:
            self._context.load_cert_chain(*_files(directory, "client", client))

    @property
    def url(self) -> str:
        """The relay's address."""
        return f"https://{HOST}:{self.server_port}"

    def rotate(self, authority: pki.Authority) -> None:
        """Use a certificate of another authority from now on; end all connections."""
        assert isinstance(self.socket, ssl.SSLSocket)
        pair = authority.server(HOST)
        self.socket.context.load_cert_chain(*_files(self._directory, "rotated", pair))
        self.cut()

    @contextmanager
    def upstream(self) -> Iterator[http.client.HTTPSConnection]:
        """Connect to the API server."""
        host, port = self._to.hostname, self._to.port
        connection = http.client.HTTPSConnection(str(host), port, context=self._context)
        try:
            yield connection
        finally:
            connection.close()

    def expire_watches(self, *, as_event: bool) -> None:
        """Answer the next watch of each collection as if its resource version was too old."""
        paths = {urlsplit(path).path for _, path in self.requests if "watch=true" in path}
        self._expired = dict.fromkeys(paths, as_event)

    @property
    def expiring(self) -> bool:
        """Whether watches remain to be answered as expired."""
        return bool(self._expired)

    def cut(self) -> None:
        """End every connection at once."""
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def expire(self, answering: BaseHTTPRequestHandler) -> bool:
        """Answer an expired watch. Return False for other requests."""
        as_event = self._expired.pop(urlsplit(answering.path).path, None)
        if as_event is None:
            return False
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
        status |= {"status": "Failure", "reason": "Expired", "code": 410}
        body = {"type": "ERROR", "object": status} if as_event else status
        content = json.dumps(body).encode() + b"\n"
        answering.send_response(200 if as_event else 410)
        answering.send_header("Content-Length", str(len(content)))
        answering.end_headers()
        answering.wfile.write(content)
        return True

    def connected(self, connection: socket.socket) -> None:
        """Record a connection."""
        self._connections.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: connections may end at any time here."""


@contextmanager
def relay(server: ApiServer, directory: Path, client: pki.Pair | None = None) -> Iterator[ApiRelay]:
    """Run a relay to an API server; `client` is its identity for requests without a token."""
    with ApiRelay(server, directory, client) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            with suppress(OSError):
                running.shutdown()
            thread.join()


def _files(directory: Path, name: str, pair: pki.Pair) -> tuple[Path, Path]:
    files = directory / f"{name}.crt", directory / f"{name}.key"
    for file, content in zip(files, (pair.certificate, pair.key), strict=True):
        file.write_bytes(content)
    return files
