"""Lists and watches on an event loop, of an API server that may be hostile."""

import asyncio
import gc
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TypeVar
from unittest.mock import patch

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.cpu_budget import CpuBudget, CpuShare
from signer.fairness.memory_budget import MemoryBudget
from signer.kube.transport import stream
from signer.kube.transport.client import ApiClient
from signer.kube.transport.event_loop import EventLoop
from signer.kube.transport.kubeconfig import Connection
from signer.kube.transport.stream import ApiStream, LineBuffer
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server

T = TypeVar("T")
PATH = "/api/v1/things"
MAX_RESPONSE = 1 << 20


class Here(EventLoop):
    """Calls functions at once, and notes what is called for whom."""

    def __init__(self) -> None:
        self.called: list[tuple[str, str]] = []

    async def call(self, tenant: str, function: Callable[[], T]) -> T:
        inner = getattr(function, "func", function)
        self.called.append((tenant, inner.__name__))
        return function()


def open_stream(
    described: Connection,
    *,
    cpu: CpuShare | None = None,
    caller: Here | None = None,
    connecting: asyncio.Lock | None = None,
    reading: MemoryBudget | None = None,
) -> ApiStream:
    api = ApiClient("fake", described, user_agent="test", max_response=MAX_RESPONSE, cpu=cpu)
    return ApiStream(
        api,
        caller=caller or Here(),
        tenant="team-a",
        connecting=connecting or asyncio.Lock(),
        reading=reading,
    )


@contextmanager
def serving(handler: Handler, directory: Path) -> Iterator[tuple[FakeApiServer, ApiStream]]:
    with api_server(handler, directory) as server:
        opened = open_stream(server.connection())
        yield server, opened
        opened.close()
        gc.collect()


async def collect(opened: ApiStream, query: Mapping[str, str]) -> list[bytes]:
    accepted, *events = [line async for line in opened.watch(PATH, query)]
    assert accepted == b""
    return events


def watch(opened: ApiStream, query: Mapping[str, str] | None = None) -> list[bytes]:
    """Return the events of one watch."""
    return asyncio.run(collect(opened, query or {}))


def test_list_and_watch_use_one_connection(tmp_path: Path) -> None:
    """Each collection of a cluster had a connection for its list and another for its watch."""
    ports: set[int] = set()

    def give(answering: Answering) -> None:
        ports.add(answering.client_address[1])
        answering.give_chunks(iter([b'{"type":"ADDED"}\n']))

    async def list_and_watch(opened: ApiStream) -> None:
        for _ in range(2):
            await opened.get_page(PATH, {})
            assert await collect(opened, {}) == [b'{"type":"ADDED"}']

    with serving(give, tmp_path) as (server, opened):
        asyncio.run(list_and_watch(opened))
    assert len(server.requests) == 4
    assert len(ports) == 1


def test_streams_of_one_server_set_up_tls_one_after_another(tmp_path: Path) -> None:
    """500 clusters had 1,500 handshakes at once, each with the buffers of a handshake."""
    steps: list[object] = []

    class Noting(Here):
        async def call(self, tenant: str, function: Callable[[], T]) -> T:
            steps.append(getattr(function, "__self__", None))
            return await super().call(tenant, function)

    async def read_at_once(described: Connection) -> None:
        connecting, caller = asyncio.Lock(), Noting()
        streams = [open_stream(described, caller=caller, connecting=connecting) for _ in range(3)]
        await asyncio.gather(*(opened.get_page(PATH, {}) for opened in streams))
        for opened in streams:
            opened.close()

    with api_server(lambda a: a.give({}), tmp_path) as server:
        asyncio.run(read_at_once(server.connection()))
    # Each handshake has several steps.
    assert len(steps) > len(set(steps)) == 3
    assert len([connection for connection, _ in itertools.groupby(steps)]) == 3


def test_connection_that_the_server_closed_is_replaced(tmp_path: Path) -> None:
    def give(answering: Answering) -> None:
        answering.give({}, Connection="close")

    async def read_twice(opened: ApiStream) -> None:
        for _ in range(2):
            await opened.get_page(PATH, {})

    with serving(give, tmp_path) as (server, opened):
        asyncio.run(read_twice(opened))
    assert len(server.requests) == 2


def test_watch_yields_events_however_they_are_cut(tmp_path: Path) -> None:
    chunks = [b'{"type":"ADDED"', b',"object":{}}\n{"type":', b'"DELETED","object":{}}\n\n']
    with serving(lambda a: a.give_chunks(iter(chunks)), tmp_path) as (server, opened):
        events = watch(opened, {"resourceVersion": "7"})
    assert [json.loads(event)["type"] for event in events] == ["ADDED", "DELETED"]
    assert server.requests[0].path == f"{PATH}?resourceVersion=7&watch=true"


def split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    lines = LineBuffer()
    for chunk in chunks:
        yield from lines.split(chunk)


@pytest.mark.parametrize("cut", [1, 7, 4096, 1 << 20])
def test_lines_are_found_however_they_are_cut(cut: int) -> None:
    lines = [b"a" * 5000, b"b", b"c" * 100, b"d"]
    text = b"\n\n".join(lines) + b"\nrest"
    chunks = (text[at : at + cut] for at in range(0, len(text), cut))
    assert list(split(chunks)) == lines


def test_joining_chunks_of_a_large_event_takes_linear_time() -> None:
    """Each chunk used to copy all chunks before it: 4 MiB in pieces of 64 bytes took minutes."""

    def seconds(size: int) -> float:
        chunks = itertools.chain(itertools.repeat(b"x" * 64, size // 64), [b"\n"])
        begun = time.process_time()
        assert [len(line) for line in split(chunks)] == [size]
        return time.process_time() - begun

    seconds(1 << 16)
    assert seconds(stream._MAX_EVENT) < 40 * max(seconds(stream._MAX_EVENT // 8), 0.005)


def test_refused_credential_is_noted(tmp_path: Path) -> None:
    """The kubeconfig Secret is then read again."""
    with serving(lambda a: a.give({}, 401), tmp_path) as (_, opened):
        with pytest.raises(ApiServerUnavailable, match="status 401"):
            watch(opened)
        assert opened._endpoint.unauthorized


def test_token_that_is_no_header_value_is_not_logged(tmp_path: Path) -> None:
    """The message of the HTTP library has the value."""
    with api_server(lambda a: a.give({}), tmp_path) as server:
        opened = open_stream(replace(server.connection(), token="very\nsecret"))
        with pytest.raises(ApiServerUnavailable) as caught:
            watch(opened)
        opened.close()
    assert "secret" not in f"{caught.value.message} {caught.value.detail}"
    assert server.requests == []


def test_endless_event_ends_the_watch(tmp_path: Path) -> None:
    with (
        patch.object(stream, "_MAX_EVENT", 1 << 20),
        serving(lambda a: a.give_chunks(itertools.repeat(b"x" * 65536)), tmp_path) as (_, opened),
        pytest.raises(ApiServerUnavailable, match="event of the API server is too large"),
    ):
        watch(opened)


def test_events_that_never_end_count_for_the_memory_of_their_tenant(tmp_path: Path) -> None:
    """Each of 1,500 watches of a tenant held up to 4 MiB that no budget counted."""
    reading = MemoryBudget(per_tenant=1000, total=1000, reserved=0)

    def give(answering: Answering) -> None:
        answering.give_chunks(iter([b"a\n" + b"b" * 900, b"\nc\n" + b"d" * 1001]))

    used: list[tuple[bytes, int]] = []

    async def use(opened: ApiStream) -> None:
        async for line in opened.watch(PATH, {}):
            size = reading.used().get("team-a", 0)
            used.append((line[:1], size))

    with api_server(give, tmp_path) as server:
        opened = open_stream(server.connection(), reading=reading)
        with pytest.raises(ApiServerUnavailable, match="of namespace team-a send at the same time"):
            asyncio.run(use(opened))
    assert used == [(b"", 0), (b"a", 0), (b"b", 900), (b"c", 900)]
    assert reading.used() == {}


def test_page_counts_for_its_tenant_until_the_next_request(tmp_path: Path) -> None:
    """A reflector that pauses for CPU time holds the page that it decodes."""
    reading = MemoryBudget(per_tenant=1000, total=1000, reserved=0)
    pages = iter([b"a" * 900, b"b" * 100, b"c" * 1001])

    async def read(opened: ApiStream) -> list[int]:
        used = []
        for _ in range(2):
            await opened.get_page(PATH, {})
            used.append(reading.used()["team-a"])
        with pytest.raises(ApiServerUnavailable, match="exceeds its memory budget"):
            await opened.get_page(PATH, {})
        assert reading.used() == {}
        return used

    with api_server(lambda a: a.give_chunks(iter([next(pages)])), tmp_path) as server:
        assert asyncio.run(read(open_stream(server.connection(), reading=reading))) == [900, 100]


def test_endless_headers_end_the_watch(tmp_path: Path) -> None:
    def headers(answering: Answering) -> None:
        answering.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            answering.wfile.write(b"X-%d: %s\r\n" % (number, b"x" * 1000))

    with (
        serving(headers, tmp_path) as (server, opened),
        pytest.raises(ApiServerUnavailable, match="cannot be reached") as caught,
    ):
        watch(opened)
    assert "too long" in caught.value.detail or "large" in caught.value.detail, caught.value.detail
    assert len(server.requests) == 1


def test_watch_that_brings_bytes_without_a_pause_ends_in_time(tmp_path: Path) -> None:
    """Bytes that have arrived already are read without waiting, so a timeout alone ends nothing."""
    with (
        patch.object(stream, "_WATCH_SECONDS", 0.5),
        serving(lambda a: a.give_chunks(itertools.repeat(b"{}\n" * 9999)), tmp_path) as (_, opened),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        asyncio.run(drain(opened.watch(PATH, {})))


def test_silent_watch_ends_without_an_error(tmp_path: Path) -> None:
    """An idle API server is silent too: idle clusters logged interruptions all day."""
    lines = iter([b'{"type":"BOOKMARK","object":{}}\n'])

    def silent(answering: Answering) -> None:
        answering.send_response(200)
        answering.send_header("Transfer-Encoding", "chunked")
        answering.end_headers()
        line = next(lines)
        answering.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        answering.wfile.flush()
        answering.rfile.read(1)

    with patch.object(stream, "_SILENCE_SECONDS", 0.2), serving(silent, tmp_path) as (_, opened):
        assert watch(opened) == [b'{"type":"BOOKMARK","object":{}}']
        opened.close()


def test_server_that_does_not_answer_a_watch_is_unreachable(tmp_path: Path) -> None:
    """Unlike silence after the answer began, this is a server that hangs."""

    def hang(answering: Answering) -> None:
        answering.rfile.read(1)

    with (
        patch.object(stream, "_SILENCE_SECONDS", 0.2),
        serving(hang, tmp_path) as (_, opened),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        watch(opened)


def test_name_of_a_server_is_looked_up_on_a_thread_of_its_tenant(tmp_path: Path) -> None:
    """A name server that does not answer would stop all watches."""
    caller = Here()
    with api_server(lambda a: a.give({}), tmp_path, names=("localhost",)) as server:
        named = replace(server.connection(), server=server.url.replace("127.0.0.1", "localhost"))
        opened = open_stream(named, caller=caller)
        asyncio.run(opened.get_page(PATH, {}))
        opened.close()
    assert caller.called[0] == ("team-a", "getaddrinfo")


def test_handshake_is_computed_on_a_thread_of_its_tenant(tmp_path: Path) -> None:
    """Keys and chains of a hostile server can take OpenSSL tenths of a second."""
    caller = Here()
    with api_server(lambda a: a.give({}), tmp_path) as server:
        opened = open_stream(server.connection(), caller=caller)
        asyncio.run(opened.get_page(PATH, {}))
        opened.close()
    assert set(caller.called) == {("team-a", "_continue_handshake")}


def tiny_chunks(answering: Answering) -> None:
    answering.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(400):
        answering.wfile.write(b"1\r\nx\r\n" * 4096)


def test_stream_of_tiny_chunks_does_not_use_all_cpu_time(tmp_path: Path) -> None:
    """Three watches of one tenant took half of all CPU time, and other tenants' joins six times."""
    sending = Event()
    seconds = [0.0]

    def thread_time() -> float:
        if sending.is_set():
            seconds.append(float(len(seconds)))
        return seconds[-1]

    def send(answering: Answering) -> None:
        sending.set()
        tiny_chunks(answering)

    budget = CpuBudget(share=1.0, burst=2.0, thread_time=thread_time)
    with (
        patch.object(stream, "_WATCH_SECONDS", 1.5),
        api_server(send, tmp_path) as server,
    ):
        opened = open_stream(server.connection(), cpu=CpuShare(budget, "team-a"))
        with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
            watch(opened)
        opened.close()
    # Each time it is asked, the thread has used another second. Without pauses there are thousands.
    assert len(seconds) < 50


def test_pause_that_outlasts_an_answer_is_a_failure_of_the_server(tmp_path: Path) -> None:
    """It was logged as a bug, and the Cluster was not shown as one that is not served."""
    seconds = itertools.count()
    budget = CpuBudget(share=0.1, burst=100.0, thread_time=lambda: float(next(seconds)))

    async def read(opened: ApiStream) -> None:
        await opened.get_page(PATH, {})
        budget.call("team-a", lambda: [next(seconds) for _ in range(1000)])
        await opened.yield_cpu()

    with (
        patch.object(stream, "ANSWER_SECONDS", 0.5),
        api_server(lambda a: a.give({}), tmp_path) as server,
    ):
        opened = open_stream(server.connection(), cpu=CpuShare(budget, "team-a"))
        with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
            asyncio.run(read(opened))


@pytest.mark.parametrize(
    ("cpu", "piece"), [(None, 256 << 10), (CpuShare(CpuBudget(), "team-a"), 16 << 10)]
)
def test_only_the_management_cluster_is_read_in_large_pieces(
    cpu: CpuShare | None, piece: int, tmp_path: Path
) -> None:
    """A list of 10,000 Machines took 3,000 turns of the event loop."""
    sizes: set[int] = set()
    receive = asyncio.SelectorEventLoop.sock_recv

    async def record(loop: asyncio.SelectorEventLoop, source: socket.socket, size: int) -> bytes:
        sizes.add(size)
        return await receive(loop, source, size)

    with (
        patch.object(asyncio.SelectorEventLoop, "sock_recv", record),
        api_server(lambda a: a.give({}), tmp_path) as server,
    ):
        opened = open_stream(server.connection(), cpu=cpu)
        asyncio.run(opened.get_page(PATH, {}))
        opened.close()
    assert sizes == {piece}


def test_hostile_stream_does_not_stop_the_others(tmp_path: Path) -> None:
    """All watches share one thread, and one reads as fast as its server sends."""

    def handle(answering: Answering) -> None:
        if "hostile" in answering.path:
            tiny_chunks(answering)
        else:
            answering.give({})

    async def read(opened: ApiStream, hostile: ApiStream) -> int:
        flood = asyncio.create_task(drain(hostile.watch("/hostile", {})))
        pages = 0
        while not flood.done() and pages < 20:
            await opened.get_page(PATH, {})
            pages += 1
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)
        return pages

    with serving(handle, tmp_path) as (server, opened):
        hostile = open_stream(server.connection())
        assert asyncio.run(read(opened, hostile)) == 20
        hostile.close()


async def drain(lines: AsyncIterator[bytes]) -> None:
    async for _ in lines:
        pass
