"""The markers of claims: when they are read, written and compared."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from common.errors import ApiServerUnavailable
from signer.claims.marker import Marker, Newest
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.controller.maintenance.markers import Markers
from signer.inventory.marker_client import MarkerClient
from signer.kinds.cluster import ClusterKey
from signer.seams import WentBack
from tests.builders.attested_nodes import attested_node
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KEY = ClusterKey(namespace="team-a", name="blue")


class Caches(FakeCaches):
    """Caches that have been filled."""

    def has_synced(self) -> bool:
        return True


@dataclass(eq=False)
class Workload:
    """A workload cluster with its marker."""

    marker_client: MarkerClient
    key: ClusterKey = KEY
    marker: Marker | None = None


@dataclass
class Fixture:
    """One Cluster, its claims, and an API server that has its marker."""

    api: FakeCluster = field(default_factory=FakeCluster)
    caches: Caches = field(default_factory=Caches)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for cache in (
            self.caches.clusters,
            self.caches.machines,
            self.caches.pools,
            self.caches.bootstraps,
        ):
            cache.replace({})
        self.restart()

    def restart(self) -> None:
        """Start the signer: it knows nothing."""
        management = cast("ManagementCluster", self.caches)
        self.markers = Markers(management, lambda: NOW, lambda: self.seconds)
        self.workload = Workload(MarkerClient(FakeClient(self.api)))
        self.caches.set_went_back({})

    def attest(self, days_ago: float) -> None:
        """Replace the only claim by one of that age, with a certificate for a week."""
        at = NOW - timedelta(days=days_ago)
        claim = attested_node(
            KEY, key="ab" * 32, last_attested=at, not_after=at + timedelta(days=7)
        )
        self.caches.nodes.replace({f"team-a/{claim.name}": claim})

    def round(self) -> None:
        """Run a round of maintenance, a minute after the last one, and what follows it."""
        self.seconds += 60
        self.markers.sync(cast("WorkloadCluster", self.workload))
        self.update()

    def update(self) -> None:
        self.markers.update([cast("WorkloadCluster", self.workload)])

    @property
    def stored(self) -> Marker:
        return MarkerClient(FakeClient(self.api)).read()


def at_days_ago(days: float) -> Newest:
    at = NOW - timedelta(days=days)
    return Newest(last_attested=at, not_after=at + timedelta(days=7))


@pytest.fixture
def marked() -> Fixture:
    """Return a Cluster whose newest claim of yesterday is marked down."""
    fixture = Fixture()
    fixture.attest(1)
    fixture.round()
    fixture.round()
    assert fixture.stored == Marker(newest=at_days_ago(1))
    return fixture


LOST = WentBack(at=NOW - timedelta(days=1), until=NOW + timedelta(days=6))


@pytest.mark.parametrize("restarts", [False, True])
def test_lost_claims_are_noticed_before_the_marker_is_written(
    marked: Fixture, caplog: pytest.LogCaptureFixture, *, restarts: bool
) -> None:
    if restarts:
        marked.restart()
        marked.markers.sync(cast("WorkloadCluster", marked.workload))
    marked.attest(3)
    marked.update()
    assert marked.caches.went_back(KEY) == LOST
    [alarm] = [r for r in caplog.records if r.message == "alarm about a cluster"]
    assert vars(alarm)["fields"]["reason"] == "ClaimsOutOfDate"
    marked.round()
    assert marked.stored == Marker(newest=at_days_ago(3), went_back=LOST)
    marked.restart()
    marked.round()
    assert marked.caches.went_back(KEY) == LOST


def test_nothing_is_known_until_the_marker_was_read(marked: Fixture) -> None:
    marked.restart()
    marked.update()
    with pytest.raises(ApiServerUnavailable, match="is not known yet"):
        marked.caches.went_back(KEY)
    marked.round()
    assert marked.caches.went_back(KEY) is None


def test_incomplete_claims_are_not_lost(marked: Fixture) -> None:
    marked.attest(3)
    for _ in marked.caches.nodes.finish_load(set(), {"team-a"}, 0):
        pass
    marked.update()
    with pytest.raises(ApiServerUnavailable, match="is not known yet"):
        marked.caches.went_back(KEY)


def test_marker_is_written_once_a_minute(marked: Fixture) -> None:
    marked.attest(0.5)
    marked.update()
    marked.seconds += 59
    marked.markers.sync(cast("WorkloadCluster", marked.workload))
    assert marked.stored == Marker(newest=at_days_ago(1))
    marked.seconds += 1
    marked.markers.sync(cast("WorkloadCluster", marked.workload))
    assert marked.stored == Marker(newest=at_days_ago(0.5))


def test_marker_that_is_forbidden_changes_nothing(marked: Fixture) -> None:
    marked.restart()

    marked.api.intercept(403)
    with pytest.raises(ApiServerUnavailable):
        marked.markers.sync(cast("WorkloadCluster", marked.workload))
    marked.attest(3)
    marked.update()
    assert marked.caches.went_back(KEY) is None
