"""Watches of infrastructure kinds: tenants name kinds, and must not start watches without end."""

import math
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.clusters import infrastructure_watches
from signer.clusters.infrastructure_watches import InfrastructureWatches
from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.cluster_api.references import Reference, read_infrastructure
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch import ResourceSpec
from signer.kube.watches.watch_threads import Watch, WatchThreads
from tests.builders import kube_objects
from tests.builders.kube_objects import INFRASTRUCTURE, RECORD
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

V = TypeVar("V")
KIND = (INFRASTRUCTURE, "TestMachine")


def reference(kind: str = "TestMachine", group: str = INFRASTRUCTURE) -> Reference:
    return Reference(group=group, kind=kind, namespace="team-a", name="infra")


@dataclass(slots=True)
class FakeWatch:
    """A watch that brings no events."""

    stopped: bool = False
    has_ended: bool = False
    lists: int = 1

    def list_again(self) -> None:
        self.lists += 1

    def stop(self) -> None:
        self.stopped = True


@dataclass(slots=True)
class Landscape(WatchThreads):
    """A management cluster that serves kinds, and objects that refer to kinds."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    used: set[tuple[str, str]] = field(default_factory=lambda: {KIND})
    changed: list[Reference] = field(default_factory=list)
    started: dict[str, FakeWatch] = field(default_factory=dict)
    watches: InfrastructureWatches = field(init=False)

    def __post_init__(self) -> None:
        self.serve("TestMachine")
        self.watches = InfrastructureWatches(
            FakeClient(self.cluster),
            self,
            Event(),
            groups=("infrastructure.cluster.x-k8s.io",),
            used_kinds=lambda: self.used,
            changed=self.changed.append,
            budget=MemoryBudget(),
        )

    def serve(self, *kinds: str) -> None:
        """Serve these kinds of infrastructure, and no others."""
        self.cluster.kinds[f"{INFRASTRUCTURE}/v1"] = {f"{k.lower()}s": k for k in kinds}

    def start(self, resource: ResourceSpec[V], cache: Cache[V]) -> Watch:
        assert not cache.has_synced
        self.started[resource.plural] = FakeWatch()
        return cast("Watch", self.started[resource.plural])

    @property
    def watched(self) -> set[tuple[str, str]]:
        return set(self.watches._watches)


@pytest.fixture
def landscape() -> Landscape:
    return Landscape()


def test_used_kind_is_watched(landscape: Landscape) -> None:
    with pytest.raises(ApiServerUnavailable, match="TestMachines are not known yet"):
        landscape.watches.get(reference())
    landscape.watches.sync()
    assert landscape.watched == {KIND}
    with pytest.raises(ApiServerUnavailable, match="TestMachines are not known yet"):
        landscape.watches.get(reference())
    value = read_infrastructure(kube_objects.infrastructure("infra", **RECORD))
    landscape.watches._watches[KIND].cache.replace({"team-a/infra": value})
    assert landscape.watches.get(reference()) is value
    assert landscape.changed == [reference()]


def test_every_watched_kind_is_listed_again(landscape: Landscape) -> None:
    landscape.watches.sync()
    landscape.watches.list_again()
    assert {plural: watch.lists for plural, watch in landscape.started.items()} == {
        "TestMachines": 2
    }


def test_each_new_kind_does_not_start_a_watch_without_end(landscape: Landscape) -> None:
    """A tenant's 2,000 kinds made 2,000 threads: only kinds that are installed are watched."""
    landscape.used |= {(INFRASTRUCTURE, f"Kind{n}") for n in range(2000)}
    landscape.watches.sync()
    assert landscape.watched == {KIND}
    assert landscape.watches.get(reference("Kind7")) is None


def test_more_kinds_than_the_limit_are_not_watched(
    landscape: Landscape, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = [f"Kind{n}" for n in range(infrastructure_watches._MAX_KINDS + 1)]
    landscape.serve(*kinds)
    landscape.used = {(INFRASTRUCTURE, kind) for kind in kinds}
    landscape.watches.sync()
    assert len(landscape.watched) == infrastructure_watches._MAX_KINDS
    assert [r.message for r in caplog.records] == ["too many infrastructure kinds"]


def test_kind_of_another_group_is_neither_watched_nor_asked_for(landscape: Landscape) -> None:
    landscape.used = {("apps", "Deployment")}
    landscape.watches.request(reference("Deployment", "apps"))
    assert not landscape.watches._requested.is_set()
    landscape.watches.sync()
    assert landscape.watched == set()
    assert landscape.watches.get(reference("Deployment", "apps")) is None
    assert {r.path.split("/")[2] for r in landscape.cluster.requests} == {INFRASTRUCTURE}


def test_kind_that_is_missing_for_a_moment_stays_watched(landscape: Landscape) -> None:
    """An API server that starts does not know all of its kinds."""
    landscape.watches.sync()
    landscape.watches._watches[KIND].cache.replace({})
    landscape.serve()
    for _ in range(2):
        with pytest.raises(ApiServerUnavailable):
            landscape.watches.sync()
    assert landscape.watches.get(reference()) is None
    landscape.serve("TestMachine")
    landscape.watches.sync()
    assert not landscape.started["TestMachines"].stopped


@pytest.mark.parametrize("unused", ["no reference", "kind not served"])
def test_watch_of_an_unused_kind_ends(
    landscape: Landscape, unused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infrastructure_watches, "_MISSING_SECONDS", 0.0)
    landscape.watches.sync()
    watch = landscape.watches._watches[KIND]
    watch.cache.replace({})
    if unused == "no reference":
        landscape.used.clear()
    else:
        landscape.serve()
    landscape.watches.sync()
    assert landscape.started["TestMachines"].stopped
    assert not watch.cache.has_synced
    assert landscape.watched == set()


def test_kind_whose_thread_did_not_start_is_watched_by_the_next_round(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have no threads left for a while."""

    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(Landscape, "start", fails)
        with pytest.raises(RuntimeError):
            landscape.watches.sync()
    assert landscape.watched == set()
    landscape.watches.sync()
    assert landscape.watched == {KIND}


def test_new_reference_to_an_unwatched_kind_starts_a_round(landscape: Landscape) -> None:
    landscape.watches.request(reference())
    assert landscape.watches._requested.is_set()
    landscape.watches._requested.clear()
    landscape.watches.sync()
    landscape.watches.request(reference())
    assert not landscape.watches._requested.is_set()


def test_lost_watch_or_thread_of_the_kinds_is_not_healthy(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landscape.watches, "_thread", SimpleNamespace(is_alive=lambda: True))
    landscape.watches.sync()
    assert landscape.watches.is_watching()
    landscape.watches._began = -math.inf
    assert not landscape.watches.is_watching()
    landscape.watches._began = math.inf
    landscape.started["TestMachines"].has_ended = True
    assert not landscape.watches.is_watching()
    landscape.started["TestMachines"].has_ended = False
    monkeypatch.setattr(landscape.watches, "_thread", SimpleNamespace(is_alive=lambda: False))
    assert not landscape.watches.is_watching()
