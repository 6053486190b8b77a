"""Metadata services on loopback. They answer as the documentation of the platforms says.

A service answers exactly its exchanges, if the request has the headers that it requires;
all other requests get 404, as on the platforms. Some services misbehave, each in one way.
"""

import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: some tests close the connection early."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request with its answer. Without the headers in `asks` the answer is 400."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Recorded:
    """A service: exchanges by method and path, received requests, and how it writes answers."""

    exchanges: dict[str, Exchange]
    asked: list[str] = field(default_factory=list)
    write: Callable[[http.server.BaseHTTPRequestHandler, bytes], None] = field(
        default=lambda handler, body: (handler.wfile.write(body), None)[1]
    )
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the test is over, for those who never answer."""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve on a port of loopback, and return the base URL."""
        server = _Server(("127.0.0.1", 0), self._handler())
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            self.ended.set()
            server.shutdown()
            thread.join()
            server.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        recorded = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                """Log nothing."""

            def do_GET(self) -> None:
                recorded.answer(self)

            def do_PUT(self) -> None:
                recorded.answer(self)

        return Handler

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        question = f"{handler.command} {handler.path}"
        self.asked.append(question)
        exchange = self.exchanges.get(question, Exchange(status=404, body=b"Not Found"))
        if any(handler.headers.get(name) != value for name, value in exchange.asks.items()):
            exchange = Exchange(status=400, body=b"Bad Request")
        handler.send_response(exchange.status)
        handler.send_header("Content-Length", str(len(exchange.body)))
        for name, value in exchange.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        self.write(handler, exchange.body)
