"""What happens to the fleet."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.bench.simulation.fleet import Scenario
from tests.bench.simulation.queues import Outage

HOUR: Final = 3600
DAY: Final = 24 * HOUR
LIFETIMES: Final = {"1 h": HOUR, "24 h": DAY, "7 d": 7 * DAY}
ONE_TOKEN: Final = 10_000
"""Machines that join one cluster with one token."""


def scenarios() -> Sequence[Scenario]:
    """Return all scenarios, for a fleet of the default size."""
    return [
        *(_renewals(name, lifetime) for name, lifetime in LIFETIMES.items()),
        Scenario(name="all join in 1 s", lifetime=DAY, duration=2 * HOUR, join_within=1),
        Scenario(name="all join in 1 h", lifetime=DAY, duration=2 * HOUR, join_within=HOUR),
        replace(
            Scenario(name="one token, 10,000 join", lifetime=DAY, duration=2 * HOUR),
            nodes=ONE_TOKEN,
            clusters=1,
            join_within=1,
            one_token=True,
        ),
        *(_outage(name, lifetime) for name, lifetime in LIFETIMES.items()),
        *(_workload_outage(name, lifetime) for name, lifetime in LIFETIMES.items()),
        _signer_outage("a fifth of 24 h", 0.2, DAY),
        _signer_outage("a quarter of 24 h", 0.25, DAY),
        _signer_outage("a quarter of 7 d", 0.25, 7 * DAY),
    ]


def _renewals(name: str, lifetime: int) -> Scenario:
    return Scenario(name=f"renewals, {name}", lifetime=lifetime, duration=2 * HOUR)


def _outage(name: str, lifetime: int) -> Scenario:
    return Scenario(
        name=f"management API out 1 h, {name}",
        lifetime=lifetime,
        duration=4 * HOUR,
        management_outage=Outage(HOUR, 2 * HOUR),
    )


def _workload_outage(name: str, lifetime: int) -> Scenario:
    return Scenario(
        name=f"all workload APIs out 1 h, {name}",
        lifetime=lifetime,
        duration=4 * HOUR,
        workload_outage=Outage(HOUR, 2 * HOUR),
    )


def _signer_outage(name: str, share: float, lifetime: int) -> Scenario:
    end = HOUR + share * lifetime
    return Scenario(
        name=f"signers out for {name}",
        lifetime=lifetime,
        duration=round(end + 3 * HOUR),
        signer_outage=Outage(HOUR, end),
    )
