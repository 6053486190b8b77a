"""Budgets of CPU time: what a tenant's API servers send must not slow the other tenants."""

import itertools
import logging
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness import compute_line
from signer.fairness.cpu_budget import REFUND, TOTAL, CpuBudget, CpuShare
from signer.kube.transport.client import ApiClient
from signer.kube.transport.endpoint import ANSWER_SECONDS
from signer.kube.transport.http_connection import HttpConnection
from signer.kube.transport.kubeconfig import Connection
from tests.fakes.api_server import api_server
from tests.fakes.clock import FakeClock
from tests.harness import pki

SHARE = 0.1
BURST = 2.0


@dataclass
class Threads:
    """A budget, and the CPU time of the thread that runs the test."""

    clock: FakeClock = field(default_factory=FakeClock)
    cpu: float = 50.0
    budget: CpuBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = CpuBudget(
            share=SHARE,
            burst=BURST,
            monotonic=self.clock.boottime,
            thread_time=lambda: self.cpu,
        )
        self.budget.begin()

    def spend(self, tenant: str, seconds: float) -> float:
        """Use CPU time for a tenant; return the pause that follows."""
        self.cpu += seconds
        return self.budget.charge(tenant)


def test_an_tenant_above_its_share_pauses_and_another_does_not() -> None:
    threads = Threads()
    assert threads.spend("a", BURST) == 0
    assert threads.spend("a", 0.5) == pytest.approx(0.5 / SHARE)
    assert threads.spend("b", BURST) == 0


def test_all_threads_of_an_tenant_share_one_budget() -> None:
    """Else each further cluster would bring a further share."""
    threads = Threads()
    shares = [CpuShare(threads.budget, "a") for _ in range(2)]
    threads.cpu += BURST
    assert shares[0].charge() == 0
    threads.cpu += 0.5
    assert shares[1].charge() == pytest.approx(0.5 / SHARE)


def test_all_that_a_call_takes_counts_for_its_tenant() -> None:
    """Requests that it sends on the same thread would leave out what came before them."""
    threads = Threads()

    def work() -> str:
        threads.cpu += BURST
        threads.budget.begin()
        threads.cpu += 0.5
        return "done"

    value, pause = CpuShare(threads.budget, "a").call(work)
    assert value == "done"
    assert pause == pytest.approx(0.5 / SHARE)


def test_usual_time_of_a_call_does_not_count() -> None:
    threads = Threads()

    def work(seconds: float) -> None:
        threads.cpu += seconds

    share = CpuShare(threads.budget, "a")
    for _ in range(100):
        assert share.call(lambda: work(0.1), free=0.1)[1] == 0
    assert share.call(lambda: work(BURST + 0.6), free=0.1)[1] == pytest.approx(0.5 / SHARE)


def test_the_share_returns_with_time() -> None:
    threads = Threads()
    pause = threads.spend("a", BURST + 1.0)
    threads.clock.pass_time(pause)
    assert threads.spend("a", 0.0) == pytest.approx(0.0)
    threads.clock.pass_time(BURST / SHARE)
    assert threads.spend("a", BURST) == pytest.approx(0.0)


def test_a_storm_of_accepted_requests_uses_up_no_share() -> None:
    """2,000 nodes that joined at once were slowed to the share after the burst."""
    threads = Threads()
    for _ in range(5000):
        assert threads.spend("a", REFUND) == 0
        threads.budget.refund("a")


def test_accepted_requests_save_up_no_share() -> None:
    threads = Threads()
    for _ in range(5000):
        threads.budget.refund("a")
    assert threads.spend("a", BURST + 0.5) == pytest.approx(0.5 / SHARE)


def test_many_tenants_above_their_share_leave_time_to_the_others() -> None:
    """Ten of them, with a tenth each, used all CPU time."""
    threads = Threads()
    due = {f"hostile-{n}": threads.spend(f"hostile-{n}", BURST + 0.02) for n in range(100)}
    since = now = 0.0
    for turn in range(4000):
        if turn == 2000:
            since = now
        tenant = min(due, key=lambda name: due[name])
        threads.clock.pass_time(max(0.0, due[tenant] - now))
        now = max(now, due[tenant])
        due[tenant] = now + threads.spend(tenant, 0.02)
    assert 1.1 * TOTAL * (now - since) >= 2000 * 0.02
    assert threads.spend("honest", BURST) == 0


def test_tenants_get_their_share_back_when_others_stop() -> None:
    threads = Threads()
    pauses = [threads.spend(f"hostile-{n}", BURST + 0.1) for n in range(100)]
    threads.clock.pass_time(max(pauses))
    assert threads.spend("a", BURST + 0.5) == pytest.approx(0.5 / SHARE)


def test_work_before_begin_is_not_charged() -> None:
    """A worker serves one tenant after the other."""
    threads = Threads()
    threads.cpu += 100.0
    threads.budget.begin()
    assert threads.spend("a", BURST) == 0


def test_the_log_names_an_tenant_above_its_share_once(caplog: pytest.LogCaptureFixture) -> None:
    threads = Threads()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            threads.spend("team-a", BURST)
    [record] = caplog.records
    assert vars(record)["fields"] == {"namespace": "team-a", "alarm": True}


def reading(threads: Threads, directory: Path) -> None:
    """Read an answer of many tiny chunks; each read from the socket costs a second of CPU."""

    def charge() -> float:
        threads.cpu += 1.0
        return threads.budget.charge("a")

    share = SimpleNamespace(begin=threads.budget.begin, charge=charge)
    fake = SimpleNamespace(monotonic=threads.clock.boottime, sleep=threads.clock.sleep)
    chunks = itertools.repeat(b"x", 20_000)
    with (
        api_server(lambda a: a.give_chunks(iter(chunks)), directory) as server,
        patch.object(compute_line, "time", fake),
    ):
        api = ApiClient("fake", server.connection(), user_agent="test", cpu=share)  # type: ignore[arg-type]
        api.get("/things")
        api.close()


def test_stream_of_tiny_chunks_does_not_use_all_cpu_time(tmp_path: Path) -> None:
    """Three watches of one tenant took half of all CPU time, and other tenants' joins six times."""
    threads = Threads()
    with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
        reading(threads, tmp_path)
    assert threads.clock.slept
    used = threads.cpu - 50.0
    # The last pause ends with the deadline of the answer.
    assert used <= BURST + SHARE * sum(threads.clock.slept) + 2.0


def test_handshakes_that_fail_do_not_use_all_cpu_time() -> None:
    """The CPU time of a connection counted only when something was read from it."""
    threads, tried = Threads(), 0

    def fail(*_: object) -> None:
        nonlocal tried
        tried += 1
        threads.cpu += 3.0 if tried == 1 else 100.0
        raise ssl.SSLError("certificate verify failed")

    fake = SimpleNamespace(monotonic=threads.clock.boottime, sleep=threads.clock.sleep)
    ca = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()
    connection = Connection(server="https://192.0.2.1", ca=ca, token="t")
    share = CpuShare(threads.budget, "a")
    api = ApiClient("fake", connection, user_agent="test", cpu=share)
    with (
        patch.object(compute_line, "time", fake),
        patch.object(socket, "create_connection", lambda *_, **__: socket.socket()),
        patch.object(HttpConnection, "_set_up_tls", fail),
    ):
        for _ in range(3):
            with pytest.raises(ApiServerUnavailable):
                api.get("/things")
    assert threads.clock.slept == pytest.approx([(3.0 - BURST) / SHARE, ANSWER_SECONDS])
    assert tried == 2
