"""Lists and watches of an API server that may be hostile."""

import gc
import itertools
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TypeVar
from unittest.mock import patch

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.compute_line import ComputeLine
from signer.fairness.cpu_budget import CpuBudget, CpuShare
from signer.fairness.memory_budget import MemoryBudget, MemoryShare
from signer.kube.transport import list_watch
from signer.kube.transport.client import ApiClient
from signer.kube.transport.http_connection import HttpConnection, Server
from signer.kube.transport.interruption import Interrupted, Interruption
from signer.kube.transport.kubeconfig import Connection
from signer.kube.transport.list_watch import LineBuffer, ListWatch
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server

T = TypeVar("T")
SECONDS = 60.0
PATH = "/api/v1/things"
MAX_RESPONSE = 1 << 20


def open_stream(
    described: Connection,
    *,
    cpu: CpuShare | None = None,
    interruption: Interruption | None = None,
    connecting: "Lock | None" = None,
    reading: MemoryBudget | None = None,
) -> ListWatch:
    share = None if reading is None else MemoryShare(reading, "team-a")
    api = ApiClient(
        "fake",
        described,
        user_agent="test",
        max_response=MAX_RESPONSE,
        cpu=cpu,
        reading=share,
    )
    return ListWatch(api, interruption or Interruption(), connecting or Lock())


def close(opened: ListWatch) -> None:
    opened.close()
    opened._api.close()


@contextmanager
def serving(handler: Handler, directory: Path) -> Iterator[tuple[FakeApiServer, ListWatch]]:
    with api_server(handler, directory) as server:
        opened = open_stream(server.connection())
        yield server, opened
        close(opened)
        gc.collect()


def collect(opened: ListWatch, query: Mapping[str, str]) -> list[bytes]:
    accepted, *events = opened.watch(PATH, query)
    assert accepted == b""
    return events


def watch(opened: ListWatch, query: Mapping[str, str] | None = None) -> list[bytes]:
    """Return the events of one watch."""
    return collect(opened, query or {})


def test_list_and_watch_use_one_connection(tmp_path: Path) -> None:
    """Each collection of a cluster had a connection for its list and another for its watch."""
    ports: set[int] = set()

    def give(answering: Answering) -> None:
        ports.add(answering.client_address[1])
        answering.give_chunks(iter([b'{"type":"ADDED"}\n']))

    def list_and_watch(opened: ListWatch) -> None:
        for _ in range(2):
            opened.get_page(PATH, {})
            assert collect(opened, {}) == [b'{"type":"ADDED"}']

    with serving(give, tmp_path) as (server, opened):
        list_and_watch(opened)
    assert len(server.requests) == 4
    assert len(ports) == 1


def test_streams_of_one_server_set_up_tls_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 clusters had 1,500 handshakes at once, each with the buffers of a handshake."""
    connecting, held = Lock(), list[bool]()
    set_up = HttpConnection._set_up_tls

    def note(connection: HttpConnection, connected: socket.socket, server: Server) -> ssl.SSLSocket:
        held.append(connecting.locked())
        return set_up(connection, connected, server)

    monkeypatch.setattr(HttpConnection, "_set_up_tls", note)
    with api_server(lambda a: a.give({}), tmp_path) as server:
        opened = open_stream(server.connection(), connecting=connecting)
        opened.get_page(PATH, {})
        close(opened)
    assert held == [True]
    assert not connecting.locked()


def test_connection_that_the_server_closed_is_replaced(tmp_path: Path) -> None:
    def give(answering: Answering) -> None:
        answering.give({}, Connection="close")

    def read_twice(opened: ListWatch) -> None:
        for _ in range(2):
            opened.get_page(PATH, {})

    with serving(give, tmp_path) as (server, opened):
        read_twice(opened)
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
    assert seconds(list_watch._MAX_EVENT) < 40 * max(seconds(list_watch._MAX_EVENT // 8), 0.005)


def test_refused_credential_is_noted(tmp_path: Path) -> None:
    """The kubeconfig Secret is then read again."""
    with serving(lambda a: a.give({}, 401), tmp_path) as (_, opened):
        with pytest.raises(ApiServerUnavailable, match="status 401"):
            watch(opened)
        assert opened._api.endpoint.unauthorized


def test_token_that_is_no_header_value_is_not_logged(tmp_path: Path) -> None:
    """The message of the HTTP library has the value."""
    with api_server(lambda a: a.give({}), tmp_path) as server:
        opened = open_stream(replace(server.connection(), token="very\nsecret"))
        with pytest.raises(ApiServerUnavailable) as caught:
            watch(opened)
        close(opened)
    assert "secret" not in f"{caught.value.message} {caught.value.detail}"
    assert server.requests == []


def test_endless_event_ends_the_watch(tmp_path: Path) -> None:
    with (
        patch.object(list_watch, "_MAX_EVENT", 1 << 20),
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

    def use(opened: ListWatch) -> None:
        for line in opened.watch(PATH, {}):
            size = reading.used().get("team-a", 0)
            used.append((line[:1], size))

    with api_server(give, tmp_path) as server:
        opened = open_stream(server.connection(), reading=reading)
        with pytest.raises(ApiServerUnavailable, match="of namespace team-a send at the same time"):
            use(opened)
    assert used == [(b"", 0), (b"a", 0), (b"b", 900), (b"c", 900)]
    assert reading.used() == {}


def test_page_counts_for_its_tenant_until_the_next_request(tmp_path: Path) -> None:
    """A reflector that pauses for CPU time holds the page that it decodes."""
    reading = MemoryBudget(per_tenant=1000, total=1000, reserved=0)
    pages = iter([b"a" * 900, b"b" * 100, b"c" * 1001])

    def read(opened: ListWatch) -> list[int]:
        used = []
        for _ in range(2):
            opened.get_page(PATH, {})
            used.append(reading.used()["team-a"])
        with pytest.raises(ApiServerUnavailable, match="exceeds its memory budget"):
            opened.get_page(PATH, {})
        assert reading.used() == {}
        return used

    with api_server(lambda a: a.give_chunks(iter([next(pages)])), tmp_path) as server:
        assert read(open_stream(server.connection(), reading=reading)) == [900, 100]


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
        patch.object(list_watch, "_WATCH_SECONDS", 0.5),
        serving(lambda a: a.give_chunks(itertools.repeat(b"{}\n" * 9999)), tmp_path) as (_, opened),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        watch(opened)


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

    with (
        patch.object(list_watch, "_SILENCE_SECONDS", 0.2),
        serving(silent, tmp_path) as (_, opened),
    ):
        assert watch(opened) == [b'{"type":"BOOKMARK","object":{}}']
        close(opened)


def test_server_that_does_not_answer_a_watch_is_unreachable(tmp_path: Path) -> None:
    """Unlike silence after the answer began, this is a server that hangs."""

    def hang(answering: Answering) -> None:
        answering.rfile.read(1)

    with (
        patch.object(list_watch, "_SILENCE_SECONDS", 0.2),
        serving(hang, tmp_path) as (_, opened),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        watch(opened)


def test_interrupted_watch_ends_while_it_waits(tmp_path: Path) -> None:
    """`SSLSocket.shutdown` drops TLS under the thread that reads: it goes on in plain text."""
    watching, interruption = Event(), Interruption()
    ended = list[BaseException]()

    def hang(answering: Answering) -> None:
        answering.send_response(200)
        answering.send_header("Transfer-Encoding", "chunked")
        answering.end_headers()
        answering.wfile.flush()
        watching.set()
        answering.rfile.read(1)

    def run(opened: ListWatch) -> None:
        try:
            watch(opened)
        except BaseException as error:  # noqa: BLE001 # also that it is interrupted
            ended.append(error)

    with api_server(hang, tmp_path) as server:
        opened = open_stream(server.connection(), interruption=interruption)
        thread = Thread(target=run, args=(opened,))
        thread.start()
        assert watching.wait(SECONDS)
        interruption.interrupt()
        thread.join(SECONDS)
        close(opened)
    assert [type(error) for error in ended] == [Interrupted]


def test_server_that_is_waited_for_leaves_its_place_to_the_others(tmp_path: Path) -> None:
    """40 names that no name server knows held all threads that were shared."""
    line, waiting, computed = ComputeLine(1), Event(), Event()

    def hang(answering: Answering) -> None:
        waiting.set()
        assert computed.wait(SECONDS)
        answering.give({})

    with api_server(hang, tmp_path) as server:
        opened = open_stream(server.connection())
        waits = line.start("waits", lambda: opened.get_page(PATH, {}))
        assert waiting.wait(SECONDS)
        line.start("computes", computed.set)
        waits.join(SECONDS)
        assert computed.is_set()
        close(opened)


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
        patch.object(list_watch, "_WATCH_SECONDS", 1.5),
        api_server(send, tmp_path) as server,
    ):
        opened = open_stream(server.connection(), cpu=CpuShare(budget, "team-a"))
        with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
            watch(opened)
        close(opened)
    # Each time it is asked, the thread has used another second. Without pauses there are thousands.
    assert len(seconds) < 50


def test_pause_of_a_tenant_above_its_share_ends_when_its_cluster_is_closed(tmp_path: Path) -> None:
    seconds, interruption = itertools.count(), Interruption()
    budget = CpuBudget(share=0.1, burst=100.0, thread_time=lambda: float(next(seconds)))
    with api_server(lambda a: a.give({}), tmp_path) as server:
        share = CpuShare(budget, "team-a")
        opened = open_stream(server.connection(), cpu=share, interruption=interruption)
        opened.get_page(PATH, {})
        budget.call("team-a", lambda: [next(seconds) for _ in range(1000)])
        interruption.end()
        with pytest.raises(Interrupted):
            opened.yield_cpu()
        close(opened)


def test_hostile_stream_does_not_stop_the_others(tmp_path: Path) -> None:
    """Few threads compute at a time, and one reads as fast as its server sends."""
    line, pages = ComputeLine(1), list[int]()

    def handle(answering: Answering) -> None:
        if "hostile" in answering.path:
            tiny_chunks(answering)
        else:
            answering.give({})

    def read(opened: ListWatch, flood: Thread) -> None:
        while flood.is_alive() and len(pages) < 20:
            opened.get_page(PATH, {})
            pages.append(len(pages))

    with serving(handle, tmp_path) as (server, opened):
        interruption = Interruption()
        hostile = open_stream(server.connection(), interruption=interruption)
        flood = line.start("flood", lambda: drain(hostile))
        line.start("pages", lambda: read(opened, flood)).join(SECONDS)
        assert len(pages) == 20
        interruption.end()
        flood.join(SECONDS)
        close(hostile)


def drain(opened: ListWatch) -> None:
    """Read events until the thread is interrupted."""
    with suppress(Interrupted):
        for _ in opened.watch("/hostile", {}):
            pass
