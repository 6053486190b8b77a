"""Publishes the files of each version where the release page of a forge would have them."""

import shutil
import ssl
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from tests.release.rehearsal.stage import SITE, VERSIONS, Stage
from tests.release.rehearsal.story import ALWAYS, Step


class _QuietHandler(SimpleHTTPRequestHandler):
    # apt in Debian 13 refuses a connection that ends without a close_notify of TLS: it stays open.
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


def publish(stage: Stage) -> str:
    """Serve the directory of the site over HTTPS until the end, with the files of all versions."""
    for version in VERSIONS:
        shutil.copytree(stage.dist(version), stage.site / f"v{version}")
    address = urlsplit(SITE)
    handler = partial(_QuietHandler, directory=str(stage.site))
    server = ThreadingHTTPServer((str(address.hostname), address.port or 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*stage.server_files(stage.new_directory("server")))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stage.stack.callback(server.server_close)
    stage.stack.callback(server.shutdown)
    return f"{SITE}: {len(VERSIONS)} versions"


STEPS: Final = (Step(phase="publish", subject=ALWAYS, run=publish),)
