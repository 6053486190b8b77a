"""A request ends at its deadline, although the server sends data for hours."""

import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager
from urllib3.exceptions import HTTPError, URLSchemeUnknown

from authenticator import bounded_http
from authenticator.bounded_http import DEFAULT_HEADERS, bounded_pool, send_once
from authenticator.clock import SystemClock
from authenticator.model import Deadline
from tests.harness.pki import Authority, ec_key

BUDGET_SECONDS = 0.2
LATE_SECONDS = 20
"""How late a busy machine may notice the deadline. The servers here go on for hours."""
SILENCE_SECONDS = 30.0
"""The timeout of each read: longer than the deadline, as that of a watch."""
PAUSE_SECONDS = 0.02

Script = Callable[[], Iterator[bytes]]


def drip(head: bytes) -> Script:
    """Return a handler that sends some bytes at once, then single bytes."""
    return lambda: itertools.chain([head], itertools.repeat(b"x"))


def continue_endlessly() -> Iterator[bytes]:
    """Yield interim answers (RFC 9110, section 15.2.1), which http.client skips without a limit."""
    return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")


ANSWERS: dict[str, Script] = {
    "status line": drip(b"HTTP/1.1 200 "),
    "header": drip(b"HTTP/1.1 200 OK\r\nX-Endless: "),
    "interim answers": continue_endlessly,
    "body": drip(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
}


def proxy_tls(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS context of a proxy, and that of a client which trusts it."""
    authority = Authority.make("proxy", ec_key())
    pair = authority.server("127.0.0.1")
    (directory / "pair.pem").write_bytes(pair.certificate + pair.key)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(directory / "pair.pem")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authority.pair.certificate.decode())
    return server, client


@contextlib.contextmanager
def server(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run the handler for each connection until its client closes it; return the port."""
    ended = threading.Event()

    def serve(accepted: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            accepted if tls is None else tls.wrap_socket(accepted, server_side=True) as connection,
        ):
            connection.recv(1)
            for piece in script():
                connection.sendall(piece)
                if ended.wait(PAUSE_SECONDS):
                    return

    def accept(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def send(pool: PoolManager, url: str, body: bytes | None = None) -> BaseHTTPResponse:
    """Send a request whose reads may each take longer than the deadline."""
    timeouts = (SILENCE_SECONDS, SILENCE_SECONDS)
    method = "GET" if body is None else "POST"
    return send_once(pool, method, url, headers=DEFAULT_HEADERS, timeouts=timeouts, body=body)


@contextlib.contextmanager
def ends_in_time() -> Iterator[Deadline]:
    """Yield a deadline; require an error of the library soon after it."""
    deadline = Deadline(SystemClock(), BUDGET_SECONDS)
    with pytest.raises((HTTPError, OSError)):
        yield deadline
    assert -LATE_SECONDS < deadline.remaining() <= 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("answer", ANSWERS)
def test_dripping_response_ends_with_the_deadline(answer: str) -> None:
    with server(ANSWERS[answer]) as port, ends_in_time() as deadline:
        pool = bounded_pool(deadline.remaining)
        send(pool, f"http://127.0.0.1:{port}/").read()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", ["status line", "header"])
def test_dripping_response_of_a_proxy_ends_with_the_deadline(
    answer: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONNECT is plain text for an http proxy, and goes through TLS for an https proxy."""
    tls, trusted = proxy_tls(tmp_path)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: trusted)
    with (
        server(ANSWERS[answer], tls if scheme == "https" else None) as port,
        ends_in_time() as deadline,
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        proxy = f"{scheme}://127.0.0.1:{port}"
        pool = bounded_pool(deadline.remaining, tls=context, proxy=proxy)
        send(pool, "https://api.example/")


@pytest.mark.timeout(60)
def test_server_that_reads_slowly_ends_with_the_deadline() -> None:
    """Each free byte in the server's buffer would restart the timeout of a write."""
    with server(lambda: itertools.repeat(b"")) as port, ends_in_time() as deadline:
        pool = bounded_pool(deadline.remaining)
        send(pool, f"http://127.0.0.1:{port}/", bytes(64 * 1024 * 1024))


def test_pool_supports_only_one_scheme() -> None:
    with pytest.raises(URLSchemeUnknown):
        send(bounded_pool(lambda: 1.0), "https://127.0.0.1/")
    with pytest.raises(URLSchemeUnknown):
        send(bounded_pool(lambda: 1.0, tls=ssl.create_default_context()), "http://127.0.0.1/")


@pytest.mark.parametrize(
    ("proxy", "expected"),
    [
        ("http://127.0.0.1:{port}", None),
        ("http://user:p%40ss@127.0.0.1:{port}", b"Proxy-Authorization: Basic dXNlcjpwQHNz"),
        ("http://user@127.0.0.1:{port}", b"Proxy-Authorization: Basic dXNlcjo="),
    ],
)
def test_credentials_of_a_proxy_are_sent_to_it_alone(proxy: str, expected: bytes | None) -> None:
    """The server behind the proxy sees only what is sent after CONNECT, through TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        received: list[bytes] = []

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                received.append(connection.recv(65536))

        thread = threading.Thread(target=accept)
        thread.start()
        url = proxy.format(port=listener.getsockname()[1])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        with pytest.raises((HTTPError, OSError)):
            send(bounded_pool(lambda: 20.0, tls=context, proxy=url), "https://api.example/")
        thread.join()
    head, *headers = received[0].split(b"\r\n")
    assert head.startswith(b"CONNECT api.example:443 ")
    credentials = [header for header in headers if header.startswith(b"Proxy-Auth")]
    assert credentials == ([] if expected is None else [expected])


def test_https_proxy_is_verified_with_the_authorities_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The OpenSSL of a CPython that is not the system's knows no place of them."""
    authority = Authority.make("proxies", ec_key())
    (tmp_path / "ca.pem").write_bytes(authority.pair.certificate)
    places = (str(tmp_path / "none"), str(tmp_path / "ca.pem"))
    monkeypatch.setattr(bounded_http, "AUTHORITIES", places)
    pool = bounded_http.bounded_pool(lambda: 1.0, proxy="https://proxy.example")
    assert isinstance(pool, ProxyManager)
    [trusted] = pool.connection_pool_kw["_proxy_config"].ssl_context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "proxies"),),)
