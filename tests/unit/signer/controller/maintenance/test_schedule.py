"""Rounds of maintenance: a hostile cluster neither speeds them up nor gets them after its end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from signer.controller.maintenance.schedule import WorkloadMaintenance
from signer.kinds.cluster import ClusterKey
from tests.builders.kube_objects import HOME
from tests.fakes.late_threads import LateLine


class Workload:
    """The part of a workload cluster that is read."""

    def __init__(self, key: ClusterKey = HOME) -> None:
        self.key = key
        self.stopped, self.maintenance_due = Event(), Event()
        self.full_maintenance_due = Event()
        self.is_unreachable, self.has_answered = False, True
        self.cpu = self
        self.rest = 0.0

    def call(self, function: Callable[[], bool]) -> tuple[bool, float]:
        """Be the share of the tenant, which is above it if there is a rest."""
        return function(), self.rest


@dataclass(slots=True)
class Landscape:
    """Rounds of maintenance, whose threads start to compute with `line.run`."""

    seconds: float = 0.0
    healthy: bool = True
    line: LateLine = field(default_factory=LateLine)
    rounds: list[tuple[float, bool]] = field(default_factory=list)
    """When each round was, and whether it was full."""
    closed: list[Any] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    def maintain(self, _: object, full: bool) -> bool:  # noqa: FBT001 # a callback
        self.meanwhile()
        self.rounds.append((self.seconds, full))
        return self.healthy

    def schedule(self) -> WorkloadMaintenance:
        return WorkloadMaintenance(
            self.line,
            self.maintain,
            closed=self.closed.append,
            monotonic=lambda: self.seconds,
        )

    def pass_seconds(self, schedule: WorkloadMaintenance, seconds: int, *workloads: Any) -> None:  # noqa: ANN401 # fakes
        for _ in range(seconds):
            schedule.sync(workloads)
            self.line.run()
            self.seconds += 1


def test_rounds_of_a_healthy_cluster_come_each_minute_and_a_full_one_every_ten() -> None:
    at = Landscape()
    at.pass_seconds(at.schedule(), 1201, Workload())
    assert [when for when, _ in at.rounds] == [60 * n for n in range(21)]
    assert [when for when, full in at.rounds if full] == [0, 600, 1200]


def test_failed_round_is_repeated_soon_and_in_full() -> None:
    at = Landscape(healthy=False)
    at.pass_seconds(at.schedule(), 31, Workload())
    assert at.rounds == [(0, True), (10, True), (20, True), (30, True)]


def test_full_round_that_a_request_asks_for_comes_in_seconds() -> None:
    """A deleted CA was reported after up to ten minutes, while requests failed."""
    at = Landscape()
    workload, schedule = Workload(), at.schedule()
    at.pass_seconds(schedule, 8, workload)
    workload.full_maintenance_due.set()
    at.pass_seconds(schedule, 20, workload)
    assert at.rounds == [(0, True), (8, True)]


def test_requested_rounds_of_a_cluster_have_a_minimum_interval() -> None:
    at = Landscape()
    workload = Workload()
    at.meanwhile = workload.maintenance_due.set
    at.pass_seconds(at.schedule(), 16, workload)
    assert [when for when, _ in at.rounds] == [0, 5, 10, 15]


def test_requested_rounds_pause_while_the_tenant_is_above_its_share_of_cpu_time() -> None:
    """500 requests that a hostile cluster does not delete were parsed again in each round."""
    at = Landscape()
    workload = Workload()
    workload.rest = 70.0
    at.meanwhile = workload.maintenance_due.set
    at.pass_seconds(at.schedule(), 141, workload)
    assert [when for when, _ in at.rounds] == [0, 70, 140]


def test_request_during_a_round_is_for_the_next_one() -> None:
    at = Landscape()
    workload = Workload()
    schedule = at.schedule()
    at.meanwhile = workload.maintenance_due.set
    at.pass_seconds(schedule, 1, workload)
    at.meanwhile = lambda: None
    at.pass_seconds(schedule, 20, workload)
    assert [when for when, _ in at.rounds] == [0, 5]


def test_maintenance_ends_when_its_cluster_is_closed() -> None:
    """At whatever moment: a closed cluster may have opted out, and gets no more requests."""
    at = Landscape()
    workload = Workload()
    schedule = at.schedule()
    schedule.sync([workload])  # type: ignore[list-item] # the part of it that is read
    workload.stopped.set()
    at.line.run()
    schedule.sync([])
    at.pass_seconds(schedule, 100)
    assert at.rounds == []
    assert at.closed == [workload]


def test_unreachable_cluster_takes_no_thread_until_it_answers_again() -> None:
    """Rounds of a hundred dead clusters would delay those of the tenant's other clusters."""
    at = Landscape()
    workload = Workload()
    schedule = at.schedule()
    workload.is_unreachable = True
    at.pass_seconds(schedule, 10, workload)
    workload.is_unreachable = False
    at.pass_seconds(schedule, 10, workload)
    assert [when for when, _ in at.rounds] == [10]


def test_round_that_has_not_ended_is_not_started_again() -> None:
    at = Landscape()
    schedule = at.schedule()
    workload: Any = Workload()
    for _ in range(1000):
        schedule.sync([workload])
        at.seconds += 1
    assert len(at.line.submitted) == 1


def test_cluster_that_was_never_read_gets_no_round() -> None:
    """At a start, the rounds of 30 dead Clusters of 300 held all threads for 100 s."""
    at, workload = Landscape(), Workload()
    workload.has_answered = False
    schedule = at.schedule()
    at.pass_seconds(schedule, 10, workload)
    assert at.rounds == []
    workload.has_answered = True
    at.pass_seconds(schedule, 1, workload)
    assert at.rounds == [(10, True)]
