"""Names of servers: a name server that does not answer delays only those who need it."""

import socket
from collections.abc import Callable, Iterator
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from signer.kube.transport import server_name as module
from signer.kube.transport.server_name import LOOKUP_SECONDS, ServerName, server_name
from tests.fakes.clock import FakeClock

SECONDS = 60.0
HOST, PORT = "api.example", 6443


class NameServer:
    """Answers look-ups on their threads, when the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.may_answer = Event()
        self.may_answer.set()
        self.answer: Callable[[], list[str]] = lambda: ["192.0.2.7"]
        self._find = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.find)

    def find(self, host: str, port: int, **options: Any) -> list[Any]:  # noqa: ANN401 # as theirs
        if host != HOST or options.get("flags"):
            return self._find(host, port, **options)
        self.asked += 1
        assert self.may_answer.wait(SECONDS)
        return [(0, 0, 0, "", (address, port)) for address in self.answer()]

    def refuse(self) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer(monkeypatch)
    yield made
    made.may_answer.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.boottime))
    return clock


def ended(name: ServerName) -> None:
    """Wait until the look-up that is under way has ended."""
    lookup = name._lookup
    if lookup is not None:
        assert lookup.ended.wait(SECONDS)


def test_address_needs_no_thread(servers: NameServer) -> None:
    assert ServerName("192.0.2.1", PORT).addresses() == ["192.0.2.1"]
    assert ServerName("2001:db8::1", PORT).addresses() == ["2001:db8::1"]
    assert servers.asked == 0


def test_name_is_looked_up_for_each_connection(servers: NameServer, clock: FakeClock) -> None:
    """The server may have moved."""
    name = ServerName(HOST, PORT)
    assert name.addresses() == ["192.0.2.7"]
    servers.answer = lambda: ["192.0.2.8", "192.0.2.9"]
    assert name.addresses() == ["192.0.2.8", "192.0.2.9"]
    assert clock.boottime() == FakeClock().boottime()


def test_one_lookup_at_a_time_is_under_way_and_is_waited_for_some_seconds(
    servers: NameServer, clock: FakeClock
) -> None:
    """40 such names held all threads: a look-up cannot be ended, and takes a minute or more."""
    servers.may_answer.clear()
    name = ServerName(HOST, PORT)
    lookup = name._begin()
    assert lookup is not None
    clock.pass_time(LOOKUP_SECONDS)
    for _ in range(3):
        with pytest.raises(OSError, match="no name server has answered in time"):
            name.addresses()
    assert servers.asked == 1
    servers.may_answer.set()
    assert lookup.ended.wait(SECONDS)
    assert name._addresses == ["192.0.2.7"]


def test_addresses_that_worked_are_used_while_no_name_server_answers(
    servers: NameServer, clock: FakeClock
) -> None:
    name = ServerName(HOST, PORT)
    assert name.addresses() == ["192.0.2.7"]
    servers.may_answer.clear()
    lookup = name._begin()
    assert lookup is not None
    clock.pass_time(LOOKUP_SECONDS)
    assert name.addresses() == ["192.0.2.7"]
    servers.answer = servers.refuse
    servers.may_answer.set()
    assert lookup.ended.wait(SECONDS)
    assert name.addresses() == ["192.0.2.7"]


def test_pause_after_a_lookup_grows_with_each_failure(
    servers: NameServer, clock: FakeClock
) -> None:
    name, pauses = ServerName(HOST, PORT), list[float]()
    servers.answer = servers.refuse
    for number in range(1, 9):
        with pytest.raises(OSError, match="Name or service not known"):
            name.addresses()
        ended(name)
        assert servers.asked == number
        pauses.append(name._next_at - clock.boottime())
        with pytest.raises(OSError, match="Name or service not known"):
            name.addresses()
        assert servers.asked == number
        clock.pass_time(pauses[-1])
    assert pauses[0] <= 1.0
    assert 15.0 <= pauses[-1] <= 30.0
    servers.answer = lambda: ["192.0.2.7"]
    assert name.addresses() == ["192.0.2.7"]


def test_connection_that_replaces_another_knows_its_addresses(servers: NameServer) -> None:
    """A new credential must not begin a second look-up of a name that nobody answers."""
    first = server_name(HOST, PORT)
    assert server_name(HOST, PORT) is first
    assert server_name(HOST, PORT + 1) is not first
    assert servers.asked == 0
    del first
    assert not [name for name in module._names.values() if name._host == HOST]


def test_lookup_without_a_thread_is_a_failed_connection(
    servers: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ServerName(HOST, PORT)

    def fails(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fails)
        with pytest.raises(OSError, match="no thread can look up the server's name"):
            name.addresses()
    assert name.addresses() == ["192.0.2.7"]
    assert servers.asked == 1
