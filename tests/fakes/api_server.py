"""An API server over TLS on loopback that answers as a test tells it to, hostile or not."""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.harness import pki

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Handler = Callable[["Answering"], None]


class Answering(BaseHTTPRequestHandler):
    """One request, and the means to answer it."""

    protocol_version = "HTTP/1.1"
    server: "FakeApiServer"

    def give(self, body: object, status: int = 200, **headers: str) -> None:
        """Answer with JSON, or with bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def give_chunks(self, chunks: Iterator[bytes]) -> None:
        """Answer like a watch: in chunks, until there are no more."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # theirs
        """Say nothing."""

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        request = Request(
            method=self.command,
            path=self.path,
            headers=dict(self.headers.items()),
            body=json.loads(content) if content else None,
        )
        self.server.requests.append(request)
        self.server.handler(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 # theirs


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
        self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://{HOST}:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that leave early are part of the tests."""


@contextmanager
def api_server(
    handler: Handler,
    directory: Path,
    *,
    names: tuple[str, ...] = (HOST,),
    authority: pki.Authority | None = None,
) -> Iterator[FakeApiServer]:
    """Run a server whose certificate is for these names."""
    authority = authority or pki.Authority.make("test", pki.ec_key())
    with FakeApiServer(handler, authority.server(*names), authority, directory) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
