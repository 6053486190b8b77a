"""The arithmetic of the simulation: each exchange is counted once, and the limits are real."""

import subprocess
import sys
from dataclasses import replace

import pytest

from authenticator.state.credential import RENEWAL_FRACTION, RENEWAL_SPREAD
from signer.controller.reconcile.limits import BURST, QPS, ChallengeRateLimiter
from signer.errors import TooManyChallenges
from tests.bench.simulation.calculation import averages, limits
from tests.bench.simulation.costs import Costs
from tests.bench.simulation.fleet import Fleet, Result, Scenario
from tests.bench.simulation.node import EXPIRED, UNANSWERED, UNAVAILABLE, renewal_delay, retry_delay
from tests.bench.simulation.queues import Outage, Server, TokenBucket, percentile
from tests.bench.simulation.record import quantity, read_table, recorded_table
from tests.bench.simulation.report import figures, table
from tests.bench.simulation.scenarios import DAY, HOUR, scenarios

NODES = 300
COSTS = Costs()


def run(scenario: Scenario, **changes: object) -> Result:
    """Run a scenario for a small fleet."""
    small = replace(scenario, nodes=NODES, clusters=10, **changes)  # type: ignore[arg-type]
    return Fleet(small, COSTS, seed=1).run()


def signers_out(share: float) -> Scenario:
    """Return a fleet whose signers are out for a share of the lifetime."""
    end = HOUR + share * DAY
    return Scenario(
        name="", lifetime=DAY, duration=round(end + DAY / 2), signer_outage=Outage(HOUR, end)
    )


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_exchange_is_issued_or_expired_or_pending(scenario: Scenario) -> None:
    """Each certificate has a latency and a minute, and each part of the books agrees."""
    result = run(scenario)
    assert result.asked == result.issued + result.expired + result.pending
    assert 0 <= result.pending <= NODES
    assert result.issued == len(result.latencies) == sum(result.certificates.values()) > 0
    assert 0 <= result.lost <= NODES
    assert result.latencies == sorted(result.latencies)


def test_joins_and_renewals_cost_their_writes() -> None:
    """All nodes join, with three writes each; none renews in this time."""
    joins = run(Scenario(name="", lifetime=DAY, duration=HOUR, join_within=60))
    assert (joins.issued, joins.pending, joins.lost) == (NODES, 0, 0)
    assert sum(joins.writes.values()) == 3 * NODES
    renewals = run(Scenario(name="", lifetime=DAY, duration=DAY))
    assert sum(renewals.writes.values()) == 2 * renewals.issued


def test_work_of_the_signer_is_that_of_the_exchanges() -> None:
    joins = run(Scenario(name="", lifetime=DAY, duration=HOUR, join_within=60))
    work = sum(sum(server.busy.values()) for server in joins.signers)
    assert work == pytest.approx(NODES * COSTS.join)
    assert sum(joins.management.busy.values()) == pytest.approx(NODES * COSTS.claims_of_join)


def test_the_same_seed_gives_the_same_result() -> None:
    scenario = signers_out(0.25)
    assert figures(run(scenario)) == figures(run(scenario))
    other = Fleet(replace(scenario, nodes=NODES), COSTS, seed=2).run()
    assert figures(other) != figures(run(scenario))


def test_outage_of_less_than_a_fifth_of_the_lifetime_loses_no_node() -> None:
    """docs/operate/certificates.md promises it: every node survives a fifth of the lifetime.

    After the outage, nodes still wait for their pause: half an hour, and two minutes for the call.
    """
    pause = (1800 + 120) / DAY
    assert run(signers_out(0.2 - pause)).lost == 0
    assert run(signers_out(0.3)).lost > 0


def test_offers_that_their_nodes_have_discarded_cost_the_signers_little() -> None:
    """After an outage of two days the signers verified them for 40 minutes."""
    outage = run(signers_out(0.2))
    work = sum(sum(server.busy.values()) for server in outage.signers)
    expired_offers = outage.expired * COSTS.renewal * COSTS.offer_share
    assert outage.expired > outage.issued
    assert work < outage.issued * COSTS.renewal + expired_offers / 2


def test_management_outage_shorter_than_an_exchange_costs_no_exchange() -> None:
    scenario = Scenario(
        name="", lifetime=HOUR, duration=3 * HOUR, management_outage=Outage(HOUR, HOUR + 600)
    )
    result = run(scenario)
    assert (result.expired, result.lost) == (0, 0)
    longer = run(replace(scenario, management_outage=Outage(HOUR, HOUR + 1200)))
    assert longer.expired > 0


def test_node_gives_an_exchange_up_while_the_outage_lasts() -> None:
    """In hours without the management cluster, each waiting node begins several exchanges."""
    scenario = Scenario(
        name="", lifetime=DAY, duration=DAY, management_outage=Outage(HOUR, 6 * HOUR)
    )
    result = run(scenario)
    waiting = NODES * 5 * HOUR / (0.75 * DAY)
    assert result.expired > 3 * waiting


def test_node_with_an_ended_certificate_gets_none() -> None:
    """It cannot fetch the new one.

    The nodes that became due in the first part of the outage are lost: a quarter of the lifetime is
    left on average, so this is a quarter of the lifetime, of a period of three quarters.
    """
    outage = Outage(HOUR, HOUR + HOUR / 2)
    scenario = Scenario(name="", lifetime=HOUR, duration=3 * HOUR, workload_outage=outage)
    assert run(scenario).lost == pytest.approx(NODES / 3, rel=0.1)


def test_nodes_that_need_a_certificate_are_counted_once() -> None:
    """After an outage that loses nodes, only those are due that wait at the end."""
    result = run(signers_out(0.3))
    assert result.lost > 0
    assert result.due == 0
    assert result.recovered is not None


def test_renewal_delay_is_that_of_the_program() -> None:
    delays = [renewal_delay(f"node-{n}", 1000) for n in range(200)]
    assert min(delays) >= 1000 * (RENEWAL_FRACTION - RENEWAL_SPREAD) - 1
    assert max(delays) <= 1000 * RENEWAL_FRACTION
    assert len(set(delays)) > 50


def test_next_run_begins_with_a_call_after_the_cooldown() -> None:
    """client-go asks every two minutes; the pause after unanswered offers is up to half an hour."""
    assert retry_delay(EXPIRED, 0, 0.5) == 120
    assert retry_delay(UNAVAILABLE, 10, 0.0) == 120
    assert retry_delay(UNANSWERED, 20, 0.0) == 1800
    assert retry_delay(UNANSWERED, 20, 1.0) == 960


def test_server_works_in_order_and_waits_for_the_end_of_an_outage() -> None:
    server = Server(Outage(10, 20), speed=2.0)
    assert server.serve(1, 4) == 3
    assert server.serve(2, 2) == 4
    assert server.serve(12, 2) == 21
    assert server.serve(13, 2) == 22
    assert server.peak_load() == pytest.approx(10 / (60 * 2))


def test_bucket_admits_as_the_signer_does() -> None:
    """A request that the signer refuses is admitted when the signer has a token again."""
    now = 0.0
    limiter = ChallengeRateLimiter(lambda: now)
    bucket = TokenBucket(QPS, BURST)
    assert [bucket.admit(0) for _ in range(int(BURST))] == [0] * int(BURST)
    for _ in range(int(BURST)):
        limiter.acquire("token")
    with pytest.raises(TooManyChallenges):
        limiter.acquire("token")
    admitted = bucket.admit(0)
    assert admitted == pytest.approx(1 / QPS)
    now = admitted + 1e-9
    limiter.acquire("token")
    with pytest.raises(TooManyChallenges):
        limiter.acquire("token")


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1, 2, 3, 4], 1.0) == 4


def test_averages_agree_with_the_events() -> None:
    """A fleet of 300 renews for half a day."""
    mean = averages(NODES, HOUR, COSTS)
    duration = 12 * HOUR
    result = run(Scenario(name="", lifetime=HOUR, duration=duration))
    assert result.issued / duration == pytest.approx(mean.renewals, rel=0.05)
    assert sum(result.writes.values()) / duration == pytest.approx(mean.writes, rel=0.05)


PAGE = """# Performance

Figures:

| | 1/s | CPU |
|---|---|---|
| join | 80 | 12.5 ms |
| renewal | 90 | 30 % of 5 ms |

Others:
"""


def test_costs_are_read_from_the_recorded_tables() -> None:
    table = read_table(PAGE, "Figures:")
    assert list(table) == ["join", "renewal"]
    assert quantity(table["join"]["CPU"]) == pytest.approx(0.0125)
    assert quantity(table["renewal"]["CPU"]) == pytest.approx(0.3)
    assert quantity("1 s") == 1.0


@pytest.mark.parametrize("cell", ["", "12.5", "fast", "12 minutes", "-1 s"])
def test_figure_without_a_unit_is_refused(cell: str) -> None:
    with pytest.raises(ValueError, match="must begin with a number and one of ms, s, %"):
        quantity(cell)


@pytest.mark.parametrize(
    ("before", "message"), [("Others:", "must be followed by a table"), ("None:", "not in list")]
)
def test_table_that_is_not_recorded_is_refused(before: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(PAGE, before)


def test_calculation_on_the_page_agrees_with_the_recorded_costs() -> None:
    """After a change of the costs, run `make simulate` and record its tables."""
    names = {"1 h": HOUR, "24 h": DAY, "7 d": 7 * DAY}
    recorded = recorded_table("By calculation, 100,000 nodes that only renew need:")
    assert recorded.keys() == names.keys()
    for name, row in recorded.items():
        expected = averages(100_000, names[name], COSTS)
        values = (expected.renewals, expected.writes, expected.signer, expected.management)
        for cell, value in zip(list(row.values())[1:], values, strict=True):
            decimals = len(cell.partition(".")[2])
            assert float(cell) == pytest.approx(value, abs=0.51 * 10**-decimals)


def test_limits_are_where_a_part_is_full() -> None:
    most = limits(HOUR, COSTS, machine=1 << 20, cores=4)
    assert averages(most.signer, HOUR, COSTS).signer == pytest.approx(1, abs=0.001)
    assert averages(most.management, HOUR, COSTS).management == pytest.approx(4, abs=0.001)
    assert (most.memory, most.memory_of_tenant) == (448, 128)


def test_table_shows_only_figures_that_exist() -> None:
    """Without an outage there is no recovery."""
    scenario = Scenario(name="joins", lifetime=DAY, duration=HOUR, join_within=60)
    assert "0.1 %" not in table(scenario, figures(run(scenario)))
    assert "0.1 %" in table(scenario, figures(run(signers_out(0.1))))


def test_program_lists_its_scenarios() -> None:
    command = [sys.executable, "-m", "tests.bench.simulation", "--list", "renewals"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["renewals, 1 h", "renewals, 24 h", "renewals, 7 d"]
