"""Connections for requests are used again while they can be, and their number is bounded."""

import gc
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import h11
import pytest

from signer.fairness import compute_line
from signer.kube.transport import connection_pool, http_connection
from signer.kube.transport.connection_pool import ConnectionPool
from signer.kube.transport.endpoint import MAX_ADDRESSES, Endpoint
from signer.kube.transport.http_connection import ContentTooLarge
from signer.kube.transport.http_messages import HttpMessages, HttpRequest
from signer.kube.transport.kubeconfig import Connection
from signer.kube.transport.tls import DeadlineExceeded
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.clock import FakeClock
from tests.harness import pki

MAX_CONTENT = 1 << 20
GET = HttpRequest(method="GET", target="/things", headers={"Accept": "application/json"}, body=None)


@contextmanager
def serving(handler: Handler, directory: Path) -> Iterator[tuple[FakeApiServer, ConnectionPool]]:
    with api_server(handler, directory) as server:
        endpoint = Endpoint(server.connection(), user_agent="test")
        pool = ConnectionPool(endpoint, None, None, answer_seconds=30.0)
        yield server, pool
        pool.close()
        gc.collect()


class Peers:
    """A handler that remembers the connection of each request."""

    def __init__(self) -> None:
        self.ports: list[int] = []

    def __call__(self, answering: Answering) -> None:
        self.ports.append(answering.client_address[1])
        answering.give({})


def test_connection_is_used_again(tmp_path: Path) -> None:
    peers = Peers()
    with serving(peers, tmp_path) as (_, pool):
        for _ in range(3):
            assert pool.exchange(GET, MAX_CONTENT)[:2] == (200, b"{}")
    assert len(set(peers.ports)) == 1


def test_connection_that_the_server_closed_is_not_used_again(tmp_path: Path) -> None:
    """An API server closes idle connections; the next request must not fail for it."""
    peers, closed = Peers(), Event()

    def closing(answering: Answering) -> None:
        peers(answering)
        answering.wfile.flush()
        answering.connection.shutdown(socket.SHUT_RDWR)
        answering.close_connection = True
        closed.set()

    with serving(closing, tmp_path) as (_, pool):
        for _ in range(2):
            assert pool.exchange(GET, MAX_CONTENT)[:2] == (200, b"{}")
            assert closed.wait(60.0)
            closed.clear()
    assert len(set(peers.ports)) == 2


def test_bytes_that_follow_an_answer_are_not_the_next_answer(tmp_path: Path) -> None:
    """A server could answer requests before they are made."""
    sent = Event()

    def twice(answering: Answering) -> None:
        answering.give({"answer": 1})
        answering.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nforged!")
        answering.wfile.flush()
        sent.set()

    with serving(twice, tmp_path) as (server, pool):
        for _ in range(2):
            assert pool.exchange(GET, MAX_CONTENT)[:2] == (200, b'{"answer": 1}')
            assert sent.wait(60.0)
            sent.clear()
    assert len(server.requests) == 2


def test_connection_of_a_failed_answer_is_closed(tmp_path: Path) -> None:
    """The rest of a large answer would be read as the next one."""
    peers = Peers()

    def large(answering: Answering) -> None:
        if answering.path == "/small":
            peers(answering)
        else:
            answering.give(b"x" * 2 * MAX_CONTENT)

    small = HttpRequest(method="GET", target="/small", headers={}, body=None)
    with serving(large, tmp_path) as (_, pool):
        pool.exchange(small, MAX_CONTENT)
        with pytest.raises(ContentTooLarge):
            pool.exchange(GET, MAX_CONTENT)
        pool.exchange(small, MAX_CONTENT)
    assert len(set(peers.ports)) == 2


def test_interim_answers_are_skipped(tmp_path: Path) -> None:
    def interim(answering: Answering) -> None:
        answering.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 3)
        answering.give({})

    with serving(interim, tmp_path) as (_, pool):
        assert pool.exchange(GET, MAX_CONTENT)[:2] == (200, b"{}")


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"SSH-2.0\r\n\r\n",
    ],
)
def test_answer_that_is_not_http_is_refused(start: bytes, tmp_path: Path) -> None:
    def broken(answering: Answering) -> None:
        answering.wfile.write(start + b"x" * (1 << 17))

    with serving(broken, tmp_path) as (_, pool), pytest.raises(h11.RemoteProtocolError):
        pool.exchange(GET, MAX_CONTENT)


def test_header_that_never_ends_takes_little_memory() -> None:
    """Each watch could hold 64 KiB of it, which no budget counted."""
    messages = HttpMessages("host")
    messages.encode(GET)
    taken: list[bytes] = []

    def send_endless_header() -> None:
        messages.receive(b"HTTP/1.1 200 OK\r\nX: ")
        while messages.next_event() is None:
            taken.append(b"x" * 1024)
            messages.receive(taken[-1])

    with pytest.raises(h11.RemoteProtocolError, match="too long"):
        send_endless_header()
    assert len(taken) <= 17


def test_headers_of_an_api_server_with_many_warnings_are_read() -> None:
    messages = HttpMessages("host")
    messages.encode(GET)
    warning = b"Warning: 299 - " + b'"' + b"x" * 250 + b'"\r\n'
    messages.receive(b"HTTP/1.1 200 OK\r\n" + warning * 32 + b"\r\n")
    assert isinstance(messages.next_event(), h11.Response)


def test_truncated_answer_is_refused(tmp_path: Path) -> None:
    def truncated(answering: Answering) -> None:
        answering.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")
        answering.close_connection = True

    with serving(truncated, tmp_path) as (_, pool), pytest.raises(h11.RemoteProtocolError):
        pool.exchange(GET, MAX_CONTENT)


def test_each_thread_has_a_connection_of_its_own(tmp_path: Path) -> None:
    threads, peers = 8, Peers()
    together = Barrier(threads, timeout=60.0)

    def answer_together(answering: Answering) -> None:
        together.wait()
        peers(answering)

    with (
        serving(answer_together, tmp_path) as (_, pool),
        ThreadPoolExecutor(threads) as executor,
        patch.object(connection_pool, "_MAX_IDLE_CONNECTIONS", 5),
    ):
        answers = list(executor.map(lambda _: pool.exchange(GET, MAX_CONTENT)[:2], range(threads)))
        assert len(pool._idle) == 5
    assert answers == [(200, b"{}")] * threads
    assert len(set(peers.ports)) == threads


def test_idle_connections_are_closed_after_some_seconds(tmp_path: Path) -> None:
    peers, clock = Peers(), FakeClock()
    fake = SimpleNamespace(monotonic=clock.boottime)
    with patch.object(connection_pool, "time", fake), serving(peers, tmp_path) as (_, pool):
        pool.exchange(GET, MAX_CONTENT)
        clock.pass_time(connection_pool._IDLE_SECONDS * 0.9)
        pool.close_idle()
        assert len(pool._idle) == 1
        clock.pass_time(connection_pool._IDLE_SECONDS * 0.2)
        pool.close_idle()
        assert not pool._idle
        pool.exchange(GET, MAX_CONTENT)
    assert len(set(peers.ports)) == 2


def test_closed_pool_sends_no_request(tmp_path: Path) -> None:
    with serving(Peers(), tmp_path) as (server, pool):
        pool.exchange(GET, MAX_CONTENT)
        pool.close()
        with pytest.raises(ConnectionError, match="are closed"):
            pool.exchange(GET, MAX_CONTENT)
        assert len(server.requests) == 1


def test_server_that_does_not_shake_hands_is_abandoned() -> None:
    """It accepts the connection and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        ca = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()
        endpoint = Endpoint(Connection(server=url, ca=ca), user_agent="test")
        pool = ConnectionPool(endpoint, None, None, answer_seconds=30.0)
        begun = time.monotonic()
        with (
            patch.object(http_connection, "CONNECT_SECONDS", 0.2),
            pytest.raises(TimeoutError),
        ):
            pool.exchange(GET, MAX_CONTENT)
        assert time.monotonic() - begun < 20.0


@pytest.mark.parametrize("number", [MAX_ADDRESSES, MAX_ADDRESSES + 1])
def test_first_addresses_of_a_server_are_tried_and_no_others(number: int, tmp_path: Path) -> None:
    """A tenant's name server gives any number: a hundred that do not answer took eight minutes."""
    find = socket.getaddrinfo

    def find_many(host: str, port: int, *rest: Any, **options: Any) -> list[Any]:  # noqa: ANN401 # any
        if host != "many.example":
            return find(host, port, *rest, **options)
        # Only 127.0.0.1 answers, and it comes last.
        hosts = [f"127.0.0.{last}" for last in range(number, 0, -1)]
        return [each for host in hosts for each in find(host, port, *rest, **options)]

    with (
        api_server(lambda a: a.give({}), tmp_path) as server,
        patch.object(socket, "getaddrinfo", find_many),
    ):
        url = f"https://many.example:{server.server_port}"
        ca = server.authority.pair.certificate.decode()
        connection = Connection(server=url, ca=ca, server_name="127.0.0.1")
        endpoint = Endpoint(connection, user_agent="test")
        with closing(ConnectionPool(endpoint, None, None, answer_seconds=30.0)) as pool:
            if number > MAX_ADDRESSES:
                with pytest.raises(ConnectionRefusedError):
                    pool.exchange(GET, MAX_CONTENT)
            else:
                assert pool.exchange(GET, MAX_CONTENT).status == 200


class SlowServer:
    """A socket to a server whose clock passes while it connects, and while it reads a request."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.timeouts: list[float] = []
        self._pair = socket.socketpair()

    def connect(self, _address: object, timeout: float) -> socket.socket:
        self.timeouts.append(timeout)
        self.clock.pass_time(timeout)
        raise TimeoutError("timed out")

    def set_up(self, *_: object) -> "SlowServer":
        """Be the connection with TLS."""
        return self

    def send(self, data: bytes) -> int:
        self.clock.pass_time(20.0)
        return min(len(data), 16 << 10)

    def close(self) -> None:
        for end in self._pair:
            end.close()


def slow_call(server: SlowServer, replaced: Mapping[str, object], body: bytes) -> float:
    """Send a request to a slow server; return how long that took."""
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()
    endpoint = Endpoint(Connection(server="https://many.example", ca=ca), user_agent="test")
    request = HttpRequest(method="POST", target="/things", headers={}, body=body)
    pool = ConnectionPool(endpoint, None, None, answer_seconds=12.0)
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{n}", 1)) for n in range(4)]
    begun = server.clock.boottime()
    with (
        patch.object(compute_line, "time", SimpleNamespace(monotonic=server.clock.boottime)),
        patch.object(socket, "getaddrinfo", lambda *_, **__: addresses),
        ExitStack() as stack,
        closing(server),
    ):
        for name, replacement in replaced.items():
            stack.enter_context(patch(name, replacement))
        with pytest.raises(DeadlineExceeded):
            pool.exchange(request, MAX_CONTENT)
    return server.clock.boottime() - begun


def test_server_that_reads_slowly_does_not_hold_a_worker() -> None:
    """Each TLS record of a request had 30 s: a worker that is held for 15 minutes ends the process.

    The server of the test reads one record in 20 s.
    """
    server = SlowServer(FakeClock())
    replaced = {
        "socket.create_connection": lambda *_, **__: server,
        "signer.kube.transport.http_connection.HttpConnection._set_up_tls": server.set_up,
    }
    assert slow_call(server, replaced, b"x" * (1 << 20)) == 20.0


def test_time_to_connect_counts_for_the_call() -> None:
    server = SlowServer(FakeClock())
    assert slow_call(server, {"socket.create_connection": server.connect}, b"") == 12.0
    assert server.timeouts == [5.0, 5.0, 2.0]
