"""An API server over TLS on loopback. A test sets its responses, which may be hostile."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from signer.kube.transport.kubeconfig import Connection
from tests.harness import pki

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of a client."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    body: Any
    """The content, where it is JSON."""
    client: str
    """The name in the client's certificate; empty without one."""


Handler = Callable[["Answering"], None]


class Answering(BaseHTTPRequestHandler):
    """One request, and the methods to answer it."""

    protocol_version = "HTTP/1.1"
    server: "FakeApiServer"

    def setup(self) -> None:
        """Keep the list of this test: its client may close before the request is handled."""
        super().setup()
        self.received = self.server.requests

    def give(self, body: object, status: int = 200, **headers: str) -> None:
        """Answer with JSON, or with unchanged bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def give_chunks(self, chunks: Iterator[bytes]) -> None:
        """Answer like a watch: send each chunk separately, then end the response."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the name in the base class
        """Log nothing."""

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        is_json = "json" in (self.headers.get("Content-Type") or "")
        request = Request(
            method=self.command,
            path=self.path,
            headers=dict(self.headers.items()),
            content=content,
            body=json.loads(content) if content and is_json else None,
            client=self._client(),
        )
        self.received.append(request)
        self.server.handler(self)

    def _client(self) -> str:
        assert isinstance(self.connection, ssl.SSLSocket)
        certificate: Any = self.connection.getpeercert() or {}
        subject = dict(pair[0] for pair in certificate.get("subject", ()))
        return str(subject.get("commonName", ""))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 # the name in the base class


class FakeApiServer(ThreadingHTTPServer):
    """The server; `handler` answers each request."""

    daemon_threads = True

    def __init__(
        self, handler: Handler, pair: pki.Pair, authority: pki.Authority, directory: Path
    ) -> None:
        super().__init__((HOST, 0), Answering)
        self.handler = handler
        self.requests: list[Request] = []
        self.authority = authority
        files = directory / "server.crt", directory / "server.key"
        for file, content in zip(files, (pair.certificate, pair.key), strict=True):
            file.write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        context.load_verify_locations(cadata=authority.pair.certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.server_port}"

    def connection(self) -> Connection:
        """Return how a client of the signer connects."""
        ca = self.authority.pair.certificate.decode()
        return Connection(server=self.url, ca=ca, token="very-secret")

    def rotate(self, authority: pki.Authority, directory: Path) -> None:
        """Use a certificate of another authority in the next handshakes."""
        self.authority = authority
        files = directory / "rotated.crt", directory / "rotated.key"
        pair = authority.server(HOST)
        for file, content in zip(files, (pair.certificate, pair.key), strict=True):
            file.write_bytes(content)
        assert isinstance(self.socket, ssl.SSLSocket)
        self.socket.context.load_cert_chain(*files)

    def answer_for_all_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lead all connections of this process to the server, whatever name they are for."""
        port = self.server_port
        found = socket.getaddrinfo(HOST, port, type=socket.SOCK_STREAM)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        connect = socket.create_connection
        monkeypatch.setattr(
            socket,
            "create_connection",
            lambda _, *options, **more: connect((HOST, port), *options, **more),
        )

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: some tests close the connection early."""


@contextmanager
def api_server(
    handler: Handler,
    directory: Path,
    *,
    names: tuple[str, ...] = (HOST,),
    authority: pki.Authority | None = None,
) -> Iterator[FakeApiServer]:
    """Run a server whose certificate has these names."""
    authority = authority or pki.Authority.make("test", pki.ec_key())
    with FakeApiServer(handler, authority.server(*names), authority, directory) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
