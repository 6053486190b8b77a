"""What is reported of objects that cannot be read: Events, counts, and the report on a Cluster."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from signer.controller.reports.cluster_state import ClusterReport, add_unreadable
from signer.controller.reports.unreadable_objects import UnreadableReporter
from signer.inventory.custom_resources.policy_object import SERVED
from signer.kube.events import EventRecorder
from signer.kube.unreadable import Unreadable, UnreadableObject
from tests.builders.kube_objects import HOME
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

DEEP = Unreadable(
    key="team-b/deep", problem="nested too deeply", api_version="x/v1", kind="Machine", uid="u"
)
NODE = Unreadable(key="node-1", problem="nested too deeply")
OF_MANAGEMENT = UnreadableObject("team-b", "", "Machines", DEEP)
OF_WORKLOAD = UnreadableObject("team-a", str(HOME), "Nodes", NODE)


@dataclass
class Reports:
    """A reporter, with the time and the API server to which it writes."""

    objects: list[UnreadableObject]
    time: float = 0.0
    cluster: FakeCluster = field(default_factory=FakeCluster)

    def __post_init__(self) -> None:
        self.reporter = UnreadableReporter(
            lambda: self.objects,
            EventRecorder(FakeClient(self.cluster)),
            now=lambda: datetime(2026, 11, 22, tzinfo=UTC),
            monotonic=lambda: self.time,
        )

    def written(self, seconds: float = 0.0) -> int:
        """Return how many Events an update writes, so many seconds after the last one."""
        self.time += seconds
        before = len(self.cluster.writes)
        self.reporter.update()
        return len(self.cluster.writes) - before


def test_event_is_on_the_object_once_an_hour() -> None:
    reports = Reports([OF_MANAGEMENT])
    assert [reports.written(), reports.written(60.0), reports.written(3600.0)] == [1, 0, 1]
    event = reports.cluster.bodies[0]
    assert event["involvedObject"] == {
        "apiVersion": "x/v1",
        "kind": "Machine",
        "namespace": "team-b",
        "name": "deep",
        "uid": "u",
    }
    assert event["reason"] == "ObjectUnreadable"
    assert "nested too deeply" in event["message"]


def test_objects_are_counted_by_namespace_cluster_and_kind() -> None:
    reports = Reports([OF_MANAGEMENT, OF_WORKLOAD, OF_MANAGEMENT])
    reports.written()
    assert reports.reporter.counts == {
        ("team-b", "", "Machines"): 2,
        ("team-a", "team-a/blue", "Nodes"): 1,
    }
    reports.objects.clear()
    reports.written()
    assert not reports.reporter.counts


def test_report_on_a_cluster_names_the_first_object_of_its_workload_cluster() -> None:
    report = ClusterReport(key=HOME, uid="u", policies=("all",), state=SERVED)
    assert add_unreadable(report, []) == report
    assert add_unreadable(report, [OF_WORKLOAD, OF_WORKLOAD]).message == (
        "objects of the workload cluster cannot be read: Nodes: node-1 (nested too deeply), and 1"
        " more: correct or delete them"
    )
