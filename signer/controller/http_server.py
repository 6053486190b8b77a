"""The signer as others observe it, over HTTP: `/metrics`, `/healthz` and `/readyz`.

Read-only and without secrets, so without authentication. Whoever reaches the address may ask, so
how many do at once is bounded, and so is the time and size of each request as a whole: a client
that sends a byte now and then would keep a usual server's thread for ever.
"""

import logging
import socket
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import BoundedSemaphore, Thread
from typing import Any, Final, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

_logger = logging.getLogger(__name__)

_AT_ONCE: Final = 32
_SECONDS: Final = 5.0
_LARGEST: Final = 8192
"""Bytes of a request with its headers."""
_END: Final = b"\r\n\r\n"
_PLAIN: Final = "text/plain; charset=utf-8"


class Response(NamedTuple):
    """What is answered."""

    status: HTTPStatus
    content: bytes
    content_type: str = _PLAIN


Routes = Mapping[str, Callable[[], Response]]


def build_routes(
    registry: CollectorRegistry, *, healthy: Callable[[], bool], ready: Callable[[], bool]
) -> Routes:
    """Return the pages by their paths."""
    return {
        "/metrics": lambda: Response(HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_LATEST),
        "/healthz": lambda: _probe(good=healthy()),
        "/readyz": lambda: _probe(good=ready()),
    }


class HttpServer(ThreadingTCPServer):
    """Serves pages until stopped; making it raises OSError when the address is not to be had."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 2 * _AT_ONCE

    def __init__(self, address: tuple[str, int], pages: Routes) -> None:
        self.pages = pages
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._turns = BoundedSemaphore(_AT_ONCE)
        super().__init__(address, _Request)

    def start(self) -> None:
        """Begin to serve, on a thread of its own."""
        Thread(target=self.serve_forever, name="observatory", daemon=True).start()

    def stop(self) -> None:
        """End, and give the address back."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer on a thread of its own, or close what comes when too many ask at once."""
        if not self._turns.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._turns.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer, and let the next one in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._turns.release()


class _Request(BaseRequestHandler):
    """One request, and its answer; the connection ends with it."""

    request: socket.socket
    server: HttpServer

    def handle(self) -> None:
        try:
            answer = self._answer(*self._read())
            self.request.settimeout(_SECONDS)
            self.request.sendall(_head(answer) + answer.content)
        except OSError:
            _logger.debug("whoever asked was too slow, or went away")
        except Exception:
            _logger.exception("observer not answered")

    def _answer(self, method: str, path: str) -> Response:
        page = self.server.pages.get(path)
        if method != "GET":
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, b"")
        return Response(HTTPStatus.NOT_FOUND, b"") if page is None else page()

    def _read(self) -> tuple[str, str]:
        """Read as far as the headers go, within bounds; return method and path."""
        until = time.monotonic() + _SECONDS
        data = b""
        while _END not in data:
            left = until - time.monotonic()
            if left <= 0 or len(data) > _LARGEST:
                raise TimeoutError
            self.request.settimeout(left)
            more = self.request.recv(_LARGEST)
            if not more:
                raise ConnectionAbortedError
            data += more
        method, path, *_ = (*data.partition(b"\r\n")[0].decode("latin-1").split(" "), "", "")
        return method, path


def _probe(*, good: bool) -> Response:
    return (
        Response(HTTPStatus.OK, b"ok\n")
        if good
        else Response(HTTPStatus.SERVICE_UNAVAILABLE, b"no\n")
    )


def _head(page: Response) -> bytes:
    lines = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.content)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii")
