"""A release site on loopback, and a home directory."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.controlplane.release import Sites


@dataclass
class ReleaseSite:
    """Files by path. The connection of a path in `cut` ends in the middle."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    requested_paths: list[str] = field(default_factory=list)

    @property
    def sites(self) -> Sites:
        """This server as both release sites."""
        return Sites(kubernetes=self.url, etcd=self.url)


@pytest.fixture
def site() -> Iterator[ReleaseSite]:
    """Serve files over HTTP until the test ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            released.requested_paths.append(self.path)
            body = released.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if self.path in released.cut else body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        released = ReleaseSite(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield released
        server.shutdown()
        thread.join()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a new home directory and an empty PATH."""
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "bin")}
