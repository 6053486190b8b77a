"""Answers that come byte by byte, to hold the reader for as long as it waits."""

import time
from typing import Final

from tests.fakes.api_server import Answering, Handler

DRIPS: Final = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "content of known length": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
    "content until the end": (b"HTTP/1.0 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n\n\r\n"),
    "one chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", b"x"),
}
"""The start of an answer, and the bytes that then follow slowly."""


def dripping(drip: str) -> Handler:
    """Return a handler that sends single bytes for a minute, much longer than the limit."""
    start, unit = DRIPS[drip]

    def drips(answering: Answering) -> None:
        answering.wfile.write(start)
        for _ in range(1200):
            answering.wfile.write(unit)
            time.sleep(0.05)

    return drips
