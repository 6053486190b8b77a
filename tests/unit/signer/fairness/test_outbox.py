"""Bounded batches of writes: a tenant whose writes fail or are slow delays only itself."""

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.outbox import Outbox, Write


@dataclass(slots=True)
class Server:
    """A server that counts the writes of each tenant, and an outbox for it."""

    failing: set[str] = field(default_factory=set)
    seconds: float = 0.0
    seconds_per_write: float = 0.0
    tried: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    outbox: Outbox = field(init=False)

    def __post_init__(self) -> None:
        self.outbox = Outbox("not written", "namespace", lambda: self.seconds, {"cluster": "blue"})

    def write(self, tenant: str) -> None:
        self.tried[tenant] += 1
        self.seconds += self.seconds_per_write
        if tenant in self.failing:
            raise ApiServerUnavailable(f"{tenant} refuses", detail="POST /events: 403")
        self.written[tenant] += 1

    def run_round(self, tenants: Iterable[str]) -> Exception | None:
        return self.outbox.write((tenant, partial(self.write, tenant)) for tenant in tenants)


def test_tenant_gets_a_few_writes_and_delays_no_other() -> None:
    server = Server()
    server.run_round(["large"] * 1000 + ["small"])
    assert server.written == {"large": 20, "small": 1}


def test_failed_write_pauses_its_tenant_alone(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(failing={"bad"})
    server.run_round(["bad"] * 5 + ["good"] * 5)
    server.seconds = 0.9
    server.run_round(["bad", "good"])
    assert (server.tried["bad"], server.written) == (1, {"good": 6})
    [record] = caplog.records
    assert (record.message, record.levelno) == ("not written", logging.WARNING)
    assert vars(record)["fields"] == {
        "cluster": "blue",
        "namespace": "bad",
        "message": "bad refuses",
        "detail": "POST /events: 403",
    }


def test_one_failed_write_delays_a_report_by_two_seconds_at_most() -> None:
    """A connection may be lost. The report of a policy was late by half a minute."""
    server = Server(failing={"unlucky"})
    server.run_round(["unlucky"])
    server.failing.clear()
    server.seconds = 2
    server.run_round(["unlucky"])
    assert server.written["unlucky"] == 1


def test_pause_grows_until_a_round_has_no_failure() -> None:
    """Other writes of the tenant succeed. Each failure is a line in the log."""
    server = Server()

    def fail() -> None:
        server.write("bad")
        raise ApiServerUnavailable("this object is refused")

    for _ in range(600):
        server.outbox.write([("bad", partial(server.write, "bad")), ("bad", fail)])
        server.seconds += 1
    assert server.tried["bad"] <= 2 * (600 / 15 + 6)
    server.seconds += 30
    server.run_round(["bad"])
    server.failing.add("bad")
    server.run_round(["bad"])
    before, server.seconds = server.tried["bad"], server.seconds + 2
    server.run_round(["bad"])
    assert server.tried["bad"] == before + 1


def test_three_failing_tenants_end_the_round() -> None:
    """A server that is away costs three requests of half a minute, and not one for each tenant."""
    server = Server(failing={f"team-{n}" for n in range(10)})
    failure = server.run_round(sorted(server.failing))
    assert server.tried.total() == 3
    assert isinstance(failure, ApiServerUnavailable)


def test_round_ends_after_half_a_minute() -> None:
    """A server may answer each write late."""
    server = Server(seconds_per_write=10)
    assert server.run_round(["slow"] * 10) is None
    assert server.written["slow"] == 3


def test_tenants_that_always_fail_do_not_starve_the_others() -> None:
    """In a fixed order, those that fail would end each round before the last tenant's turn."""
    server = Server(failing={f"bad-{n}" for n in range(100)})
    for _ in range(1000):
        server.run_round([*sorted(server.failing), "good"])
        server.seconds += 60
    assert server.written["good"] > 0


def test_unexpected_error_is_of_one_tenant_only(caplog: pytest.LogCaptureFixture) -> None:
    """A defect that one object causes would silence what is written after it."""
    server = Server()

    def fail() -> None:
        raise KeyError("a defect")

    writes: list[Write] = [("bad", fail)]
    writes += [(f"team-{n}", partial(server.write, f"team-{n}")) for n in range(9)]
    assert isinstance(server.outbox.write(writes), KeyError)
    assert server.written.total() == 9
    [record] = caplog.records
    assert record.exc_info is not None
