"""HTTP server for `/metrics`, `/debug/clusters`, `/healthz` and `/readyz`.

Read-only and without secrets. The probes need no authentication; the metrics need it where they are
served with TLS. Every client that reaches the address may send requests, so the number of
connections, the size of a request, and the time of a request with its response are limited. (A
timeout for each read alone would let a client that sends one byte at a time keep a thread.)
"""

import logging
import socket
import ssl
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from http import HTTPStatus
from io import BufferedIOBase
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread, Timer
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry, make_wsgi_app

from signer.kube.transport.tls import load_chain

_logger = logging.getLogger(__name__)

Access = Callable[[str], HTTPStatus]
"""Decides on an `Authorization` header: OK, or the status that refuses the request."""

_MAX_CONNECTIONS: Final = 32
_REQUEST_SECONDS: Final = 5.0
_REVIEWED_REQUEST_SECONDS: Final = 20.0
"""With TLS, two reviews may come before the response."""
METRICS_PATH: Final = "/metrics"
_MAX_REQUEST_BYTES: Final = 8192


def build_app(
    registry: CollectorRegistry,
    *,
    healthy: Callable[[], bool],
    ready: Callable[[], bool],
    clusters: Callable[[], bytes],
    access: Access | None = None,
) -> WSGIApplication:
    """Return the WSGI application with all pages; `access` protects them, except the probes."""
    protected: dict[str, WSGIApplication] = {
        METRICS_PATH: make_wsgi_app(registry, disable_compression=True),
        "/debug/clusters": _json(clusters),
    }
    pages: dict[str, WSGIApplication] = {
        **{path: _protected(page, access) for path, page in protected.items()},
        "/healthz": _probe(healthy),
        "/readyz": _probe(ready),
    }

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"], _page(HTTPStatus.NOT_FOUND))
        if environ["REQUEST_METHOD"] != "GET":
            page = _page(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return page(environ, start_response)
        except Exception:
            # wsgiref would write the traceback to stderr, where every line is JSON.
            _logger.exception("page failed", extra={"fields": {"path": environ["PATH_INFO"]}})
            return _page(HTTPStatus.INTERNAL_SERVER_ERROR)(environ, start_response)

    return app


class HttpServer(ThreadingMixIn, WSGIServer):
    """Serves one WSGI application until it is stopped.

    Raises `OSError` when it is made and cannot listen on the address.
    """

    daemon_threads = True
    request_queue_size = 2 * _MAX_CONNECTIONS

    def __init__(
        self, address: tuple[str, int], app: WSGIApplication, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve plain HTTP if `tls` is absent."""
        self._tls = tls
        self._seconds = _REQUEST_SECONDS if tls is None else _REVIEWED_REQUEST_SECONDS
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._connections = BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, _RequestHandler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind the address. The base class would also ask DNS for the name of the host."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()[:2]
        self.setup_environ()

    def start(self) -> None:
        """Start a thread that serves requests."""
        Thread(target=self.serve_forever, name="http server", daemon=True).start()

    def stop(self) -> None:
        """Stop serving and close the listening socket."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Handle a connection on a new thread; close it at once if there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Handle a connection; shut it down if it takes too long."""
        watchdog = Timer(self._seconds, _shut_down, (request,))
        watchdog.daemon = True
        watchdog.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            watchdog.cancel()
            self._connections.release()

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Do the TLS handshake, then handle the request."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # The watchdog shuts down the connection below, which ends a handshake that is too slow.
        with self._tls.wrap_socket(
            request.dup(), server_side=True, suppress_ragged_eofs=False
        ) as encrypted:
            super().finish_request(encrypted, client_address)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 - as in the base class
        """Log an exception of a handler; nearly always the client closed the connection."""
        _logger.debug("request not handled", exc_info=True)  # noqa: LOG014 - called in an except clause


class _RequestHandler(WSGIRequestHandler):
    """Handles the one request of a connection."""

    def setup(self) -> None:
        super().setup()
        self.rfile = _LimitedReader(self.rfile)  # type: ignore[assignment] # all that is called is readline

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as in the base class
        """Log at level debug; the base class would write to stderr."""
        _logger.debug("http request", extra={"fields": {"message": format % args}})


class _LimitedReader:
    """Reads the lines of a request, up to a limit for all together."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream = stream
        self._left = _MAX_REQUEST_BYTES
        self.close = stream.close

    def readline(self, size: int) -> bytes:
        """Read one line. Raises `ConnectionAbortedError`: the request is too long."""
        line = self._stream.readline(min(size, self._left))
        self._left -= len(line)
        if not self._left:
            raise ConnectionAbortedError
        return line


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _logger.debug("connection was closed before its time was up")


def _protected(page: WSGIApplication, access: Access | None) -> WSGIApplication:
    if access is None:
        return page

    def decide(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        status = access(environ.get("HTTP_AUTHORIZATION", ""))
        return (page if status == HTTPStatus.OK else _page(status))(environ, start_response)

    return decide


def _probe(good: Callable[[], bool]) -> WSGIApplication:
    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        found = (HTTPStatus.OK, b"ok\n") if good() else (HTTPStatus.SERVICE_UNAVAILABLE, b"no\n")
        return _page(*found)(environ, start_response)

    return page


def _json(render: Callable[[], bytes]) -> WSGIApplication:
    def page(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        return _page(HTTPStatus.OK, render(), "application/json")(environ, start_response)

    return page


def _page(
    status: HTTPStatus, content: bytes = b"", kind: str = "text/plain; charset=utf-8"
) -> WSGIApplication:
    def page(_: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = [("Content-Type", kind), ("Content-Length", str(len(content)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [content]

    return page


_NAME = "node-attestation-signer"
_LIFETIME = timedelta(days=3650)


def self_signed_context(now: datetime, serial_number: int) -> ssl.SSLContext:
    """Return a TLS server context with a new key and certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial_number)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    load_chain(context, (certificate.public_bytes(Encoding.PEM) + key_pem).decode())
    return context
