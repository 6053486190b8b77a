"""Changes in the management cluster notify every request whose verdict may depend on them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.clusters.infrastructure_watches import InfrastructureWatches
from signer.clusters.management_cluster import ManagementCluster
from signer.fairness.memory_budget import Budgets
from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.machine_object import MachineObject, read_machine, read_pool
from signer.inventory.cluster_api.references import Reference, read_infrastructure
from signer.kinds.attested_node import ATTESTED_NODES, AttestedNodeObject, attested_node_name
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kube.watches.watch import ResourceSpec
from signer.kube.watches.watch_threads import Watch, WatchThreads
from tests.builders import kube_objects
from tests.builders.kube_objects import DIGEST, HOME, PROVIDER_ID
from tests.builders.stored_claims import NODE as STORED
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

ANY = (HOME, None)
NODE = (HOME, "node-1")
MACHINE = (HOME, PROVIDER_ID)
SECONDS = 60.0
KEY = (None, DIGEST)
"""Requests of any Cluster may wait for an endorsement key."""

Notified = set[tuple[ClusterKey | None, str | None]]


@dataclass(slots=True)
class Landscape:
    """The caches of a management cluster, and the notifications."""

    notified: Notified = field(default_factory=set)
    cluster: FakeCluster = field(default_factory=FakeCluster)
    management: ManagementCluster = field(init=False)

    def __post_init__(self) -> None:
        self.management = ManagementCluster(
            FakeClient(self.cluster),
            Event(),
            lambda cluster, topic: self.notified.add((cluster, topic)),
            budgets=Budgets(),
            infrastructure_groups=(kube_objects.INFRASTRUCTURE,),
        )
        self.management.start()
        for cache in (self.management.machines, self.management.pools, self.management.keys):
            cache.replace({})
        self.management.clusters.replace({"team-a/blue": read_cluster(kube_objects.cluster())})
        self.management.nodes.replace({"team-a/node": claimed()})

    def put(self, machine: MachineObject) -> Notified:
        """Create or change a Machine; return the notifications."""
        self.notified.clear()
        self.management.machines.upsert("team-a/machine-1", machine)
        return set(self.notified)


def claimed() -> AttestedNodeObject:
    return STORED.replace(
        name=attested_node_name(HOME, "node-1"),
        namespace=HOME.namespace,
        cluster_name=HOME.name,
        node_name="node-1",
        provider_id=PROVIDER_ID,
        endorsement_key=DIGEST,
    )


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch) -> Landscape:
    monkeypatch.setattr(ManagementCluster, "_watch", lambda *_: None)
    monkeypatch.setattr(InfrastructureWatches, "start", lambda _: None)
    return Landscape()


def test_machine_notifies_requests_that_wait_for_its_claims(landscape: Landscape) -> None:
    """A key or name is free once its holder's Machine is deleted; addresses are set late (S2)."""
    machine = read_machine(kube_objects.machine())
    assert landscape.put(machine) >= {MACHINE, NODE, KEY}
    assert landscape.put(machine) == set()
    assert landscape.put(replace(machine, addresses=())) >= {MACHINE, NODE, KEY}
    landscape.notified.clear()
    landscape.management.machines.delete("team-a/machine-1")
    assert landscape.notified >= {MACHINE, NODE, KEY}


def test_machine_notifies_its_old_and_its_new_provider_id(landscape: Landscape) -> None:
    machine = read_machine(kube_objects.machine())
    landscape.put(replace(machine, provider_id=""))
    assert landscape.put(machine) >= {MACHINE, NODE, KEY}
    assert landscape.put(replace(machine, provider_id="metal://new")) >= {
        MACHINE,
        NODE,
        KEY,
        (HOME, "metal://new"),
    }


def test_machine_notifies_the_node_of_its_node_ref(landscape: Landscape) -> None:
    """By policy, nodeRef decides kubelet-serving requests."""
    machine = read_machine(kube_objects.machine())
    landscape.put(machine)
    assert (HOME, "node-2") in landscape.put(replace(machine, node_ref="node-2"))
    assert (HOME, "node-2") in landscape.put(machine)


def test_machine_without_a_claim_notifies_only_its_own_requests(landscape: Landscape) -> None:
    machine = replace(read_machine(kube_objects.machine()), provider_id="metal://other")
    assert landscape.put(machine) == {(HOME, "metal://other")}


def test_pool_notifies_requests_that_wait_for_its_members_claims(landscape: Landscape) -> None:
    pool = read_pool(kube_objects.pool("pool-1", PROVIDER_ID))
    landscape.notified.clear()
    landscape.management.pools.upsert("team-a/pool-1", pool)
    assert landscape.notified == {MACHINE, NODE, KEY}


def test_endorsement_key_notifies_requests_that_wait_for_it_and_its_holder(
    landscape: Landscape,
) -> None:
    """A claim is complete once both its objects are cached, in either order."""
    held_by = {
        "clusterNamespace": HOME.namespace,
        "clusterName": HOME.name,
        "nodeName": "node-1",
        "providerID": PROVIDER_ID,
        "basis": "Registered",
    }
    landscape.notified.clear()
    read = read_endorsement_key(kube_objects.endorsement_key(heldBy=held_by))
    landscape.management.keys.upsert(DIGEST, read)
    assert landscape.notified == {KEY, NODE}


def test_infrastructure_cluster_notifies_all_requests_of_its_cluster(landscape: Landscape) -> None:
    """It may name the client signer (R0)."""
    management = landscape.management
    kind = (kube_objects.INFRASTRUCTURE, "TestCluster")
    reference = Reference(group=kind[0], kind=kind[1], namespace="team-a", name=HOME.name)
    landscape.notified.clear()
    read = read_infrastructure(kube_objects.infrastructure(HOME.name))
    management._infrastructure._object_changed(kind, reference.key, None, read)
    assert landscape.notified == {ANY}


@pytest.mark.parametrize(
    ("namespace", "path"),
    [
        ("", "/apis/attestation.cluster.x-k8s.io/v1alpha1/attestednodes"),
        ("team-a", "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/team-a/attestednodes"),
    ],
)
def test_only_the_watched_namespace_is_listed(namespace: str, path: str) -> None:
    """--namespace, by clusterctl's contract for providers; empty means all namespaces.

    K1 asks about all Clusters, so caches of one namespace say nothing.
    """
    management = ManagementCluster(
        FakeClient(FakeCluster()),
        Event(),
        lambda *_: None,
        budgets=Budgets(),
        infrastructure_groups=(),
        namespace=namespace,
    )
    assert management._path(ATTESTED_NODES) == path
    for cache in (management.clusters, management.machines, management.pools, management.nodes):
        cache.replace({})
    assert management.attested_nodes_with_key(DIGEST) == (None if namespace else ())


def test_kinds_in_use_are_those_that_machines_and_clusters_refer_to(landscape: Landscape) -> None:
    landscape.put(read_machine(kube_objects.machine()))
    group = kube_objects.INFRASTRUCTURE
    assert landscape.management.used_kinds() >= {(group, "TestMachine"), (group, "TestCluster")}
    landscape.management.machines.replace({})
    assert landscape.management.used_kinds() == {(group, "TestCluster")}


@pytest.mark.parametrize("size", [1, 1 << 40], ids=["CPU", "memory"])
def test_namespace_above_its_budgets_hides_no_node_from_k1(landscape: Landscape, size: int) -> None:
    """Its owner could claim its key a second time, for a Machine in another namespace."""
    management = landscape.management
    management.nodes.replace({})
    assert management.attested_nodes_with_key(DIGEST) == ()
    management.nodes.hold("team-b/another", size)
    assert management.attested_nodes_with_key(DIGEST) is None


def test_process_that_has_lost_a_watch_is_not_healthy(
    landscape: Landscape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that is not read any more looked like one in which nothing changes."""
    management = landscape.management
    monkeypatch.setattr(InfrastructureWatches, "is_watching", lambda _: True)
    lost = Event()
    thread = management.line.start("watch", lambda: lost.wait(SECONDS))
    management._watches = [Watch(cast("Any", None), thread)]
    assert management.is_watching()
    lost.set()
    thread.join(SECONDS)
    assert not management.is_watching()


def test_what_a_providers_kind_answers_is_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five kinds whose conversion webhook was dead paused all verdicts half of the time."""
    interrupted: dict[str, Callable[[], None]] = {}

    def start(self: WatchThreads, resource: ResourceSpec[Any], _: object) -> Watch:
        interrupted[resource.plural] = self._interrupted
        return cast("Watch", None)

    monkeypatch.setattr(WatchThreads, "start", start)
    monkeypatch.setattr(InfrastructureWatches, "start", lambda _: None)
    landscape = Landscape()
    management = landscape.management
    management._infrastructure._begin((kube_objects.INFRASTRUCTURE, "TestMachine"))
    pauses: set[str] = set()
    for plural, report in interrupted.items():
        management.state.confirm(time.monotonic())
        report()
        try:
            management.state.require_confirmed()
        except ApiServerUnavailable:
            pauses.add(plural)
    assert interrupted.keys() - pauses == {"TestMachines"}
