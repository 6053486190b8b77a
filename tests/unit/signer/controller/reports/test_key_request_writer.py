"""Requests of unknown TPMs: bounded, never replaced, and deleted when they are settled."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from threading import Event
from typing import Any

import pytest

from common.formats.strict_json import format_time
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.reports import key_request_writer
from signer.controller.reports.key_request_writer import KeyRequests
from signer.fairness.memory_budget import Budgets
from signer.inventory.cluster_api.key_annotation import read_key_annotation
from signer.inventory.cluster_api.machine_object import MachineObject, read_machine
from signer.inventory.custom_resources.key_request_client import KeyRequestClient
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import object_key
from signer.kinds.key_request import (
    KEY_REQUESTS,
    MAX_OFFERED_KEYS,
    EndorsementKeyRequest,
    OfferedCertificate,
    OfferedKey,
    encode_key_request,
    read_key_request,
)
from signer.kinds.machine import Machine
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import endorsement_key, registration
from tests.builders.scenario import machine
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import Object

NOW = datetime(2026, 11, 22, tzinfo=UTC)
BLUE = ClusterKey(namespace="team-a", name="blue")
OTHER = ClusterKey(namespace="team-b", name="blue")
GENUINE, FORGED = "ab" * 32, "cd" * 32


def offered(name: str) -> OfferedKey:
    return OfferedKey(
        sha256=name,
        node_name="node-1",
        requester="system:bootstrap:abcdef",
        first_seen=NOW,
        certificate=OfferedCertificate(status="Trusted", certified_for="gce://p/z/i"),
    )


def machine_object(cluster: ClusterKey, name: str, uid: str) -> MachineObject:
    metadata = {"name": name, "namespace": cluster.namespace, "uid": uid}
    spec = {"clusterName": cluster.name, "providerID": f"test://{name}"}
    return read_machine({"metadata": metadata, "spec": spec})


@dataclass(slots=True)
class Requests:
    """A management cluster whose caches have every write at once."""

    requests: KeyRequests = field(init=False)
    management: ManagementCluster = field(init=False)
    cluster: FakeCluster = field(init=False)
    seconds: float = 0.0
    of_others: set[ClusterKey] = field(default_factory=set)
    """Clusters that other replicas serve."""

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(now=lambda: format_time(NOW), on_change=self.cache)
        api = FakeClient(self.cluster)
        self.management = ManagementCluster(
            api, Event(), lambda *_: None, budgets=Budgets(), infrastructure_groups=()
        )
        for cache in (self.management.keys, self.management.nodes, self.management.machines):
            cache.replace({})
        self.management.key_requests.replace({})
        self.requests = KeyRequests(
            self.management,
            KeyRequestClient(api),
            serves=lambda cluster: cluster not in self.of_others,
            monotonic=lambda: self.seconds,
        )

    def cache(self, kind: str, _: str, body: Object) -> None:
        """Change the cache of requests as its watch does."""
        cache, key = self.management.key_requests, object_key(body)
        cache.delete(key) if kind == "DELETED" else cache.upsert(key, read_key_request(body))

    def add_machine(
        self, name: str = "machine-1", *, cluster: ClusterKey = BLUE, generation: int = 1
    ) -> Machine:
        """Create a Machine; another generation replaces it."""
        uid = f"{name}-{generation}"
        stored = machine_object(cluster, name, uid)
        self.management.machines.upsert(f"{cluster.namespace}/{name}", stored)
        return machine(name=name, uid=uid, provider_id=stored.provider_id)

    def note(self, of: Machine, *keys: str, cluster: ClusterKey = BLUE) -> None:
        for key in keys:
            self.requests.note(cluster, of, key, lambda key=key: offered(key))  # type: ignore[misc]

    def keys(self, name: str = "team-a/machine-1") -> list[str] | None:
        """Return the stored keys of a Machine, `None` without a request."""
        request = self.management.key_requests.get(name)
        return None if request is None else [key.sha256 for key in request.keys]


def test_unknown_key_is_recorded_once() -> None:
    at = Requests()
    of = at.add_machine()
    for _ in range(3):
        at.note(of, GENUINE)
        at.requests.sync()
    assert (at.keys(), len(at.cluster.writes)) == ([GENUINE], 1)


def test_known_key_is_not_described_again() -> None:
    """Describing a key verifies certificates."""
    at = Requests()
    of = at.add_machine()
    at.note(of, GENUINE)

    def never() -> OfferedKey:
        raise AssertionError

    at.requests.note(BLUE, of, GENUINE, never)
    at.requests.sync()
    at.requests.note(BLUE, of, GENUINE, never)


def test_other_key_is_a_conflict_and_replaces_nothing() -> None:
    at = Requests()
    of = at.add_machine()
    at.note(of, FORGED)
    at.requests.sync()
    at.note(of, GENUINE)
    at.requests.sync()
    assert at.keys() == [FORGED, GENUINE]


def test_machine_has_a_bounded_number_of_keys() -> None:
    at = Requests()
    of = at.add_machine()
    names = [f"{n:064x}" for n in range(10)]
    at.note(of, *names)
    for _ in names:
        at.requests.sync()
    assert at.keys() == names[:MAX_OFFERED_KEYS]
    at.cluster.requests.clear()
    at.note(of, GENUINE)
    at.requests.sync()
    assert not at.cluster.writes


def test_key_of_another_replica_is_kept() -> None:
    at = Requests()
    of = at.add_machine()
    request = EndorsementKeyRequest(
        namespace=BLUE.namespace,
        cluster_name=BLUE.name,
        name="machine-1",
        uid="u",
        resource_version="1",
        machine_uid=of.uid,
        provider_id=of.provider_id,
        keys=(offered(FORGED),),
    )
    path = KEY_REQUESTS.collection_path("team-a")
    at.cluster.intercept(lambda _: at.cluster.put(path, encode_key_request(request)), "POST")
    at.note(of, GENUINE)
    at.requests.sync()
    assert at.keys() == [FORGED]
    at.requests.sync()
    assert at.keys() == [FORGED, GENUINE]


def test_namespace_has_a_bounded_number_of_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(key_request_writer, "_MAX_REQUESTS", 2)
    at = Requests()
    for number in range(3):
        at.note(at.add_machine(f"machine-{number}"), GENUINE)
    other = at.add_machine(cluster=OTHER)
    at.note(other, GENUINE, cluster=OTHER)
    with caplog.at_level(logging.WARNING):
        at.requests.sync()
    stored = [at.keys(f"team-a/machine-{n}") for n in range(3)]
    assert sorted(stored, key=str) == [None, [GENUINE], [GENUINE]]
    assert at.keys("team-b/machine-1") == [GENUINE]
    assert [r.message for r in caplog.records] == ["too many endorsement key requests"]


def test_keys_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_request_writer, "_MAX_DUE", 2)
    at = Requests()
    of = at.add_machine()
    for _ in range(2):
        at.note(of, *[f"{n:064x}" for n in range(4)])
    for _ in range(4):
        at.requests.sync()
    assert at.keys() == [f"{n:064x}" for n in range(2)]
    at.note(of, GENUINE)
    at.requests.sync()
    assert at.keys() == [f"{0:064x}", f"{1:064x}", GENUINE]


def test_refused_writes_of_one_namespace_do_not_stop_another() -> None:
    """A tenant can write a Machine for which the API server refuses the request."""
    at = Requests()
    at.cluster.intercept(403, "POST", "/team-a/", times=inf)
    for number in range(5):
        at.note(at.add_machine(f"machine-{number}"), GENUINE)
    at.note(at.add_machine(cluster=OTHER), GENUINE, cluster=OTHER)
    at.requests.sync()
    assert at.keys("team-b/machine-1") == [GENUINE]
    at.requests.sync()
    assert len(at.cluster.writes) == 2
    at.cluster.interceptions.clear()
    at.seconds += 31
    at.requests.sync()
    assert all(at.keys(f"team-a/machine-{n}") == [GENUINE] for n in range(5))


def delete_the_machine(at: Requests) -> None:
    at.management.machines.delete("team-a/machine-1")


def create_the_machine_again(at: Requests) -> None:
    at.add_machine(generation=2)


def annotate_the_machine(at: Requests) -> None:
    stored = machine_object(BLUE, "machine-1", "machine-1-1")
    keys = read_key_annotation(f"sha256:{GENUINE}", "Machine")
    at.management.machines.upsert("team-a/machine-1", replace(stored, registered_keys=keys))


def register_for(**fields: str | None) -> Callable[[Requests], None]:
    def register(at: Requests) -> None:
        key = endorsement_key(GENUINE, registered_for=(registration(BLUE, **fields),))
        at.management.keys.upsert(GENUINE, key)

    return register


def attest(**changes: Any) -> Callable[[Requests], None]:  # noqa: ANN401 # fields of the claim
    def write(at: Requests) -> None:
        values: dict[str, Any] = {
            "key": GENUINE,
            "machine_uid": "machine-1-1",
            "last_attested": NOW + timedelta(minutes=1),
        }
        node = attested_node(BLUE, **(values | changes))
        at.management.nodes.upsert("team-a/node", node)

    return write


CHANGES: dict[str, Callable[[Requests], None]] = {
    "the Machine is gone": delete_the_machine,
    "the Machine was created again": create_the_machine_again,
    "annotation": annotate_the_machine,
    "registered by Machine name": register_for(machine_name="machine-1"),
    "registered by provider ID": register_for(provider_id="test://machine-1"),
    "registered by node name": register_for(node_name="node-1"),
    "the node has attested": attest(),
    "registered for another Machine": register_for(machine_name="machine-2"),
    "only one field matches": register_for(machine_name="machine-1", node_name="node-2"),
    "a former Machine with the provider ID attested": attest(machine_name="machine-0"),
    "the node attested before": attest(last_attested=NOW - timedelta(days=1)),
}
OPEN = list(CHANGES)[-4:]
"""Changes after which the request stays."""


@pytest.mark.parametrize("change", CHANGES)
def test_settled_request_is_deleted_and_an_open_one_stays(change: str) -> None:
    at = Requests()
    at.note(at.add_machine(), GENUINE)
    at.requests.sync()
    CHANGES[change](at)
    at.requests.sync()
    assert at.keys() == ([GENUINE] if change in OPEN else None)


def test_settled_request_of_a_cluster_of_another_replica_stays() -> None:
    at = Requests()
    at.note(at.add_machine(), GENUINE)
    at.requests.sync()
    delete_the_machine(at)
    at.of_others.add(BLUE)
    at.requests.sync()
    assert at.keys() == [GENUINE]
    at.of_others.clear()
    at.requests.sync()
    assert at.keys() is None


def test_key_of_a_machine_that_is_gone_is_not_written() -> None:
    at = Requests()
    of = at.add_machine()
    at.note(of, GENUINE)
    at.add_machine(generation=2)
    at.requests.sync()
    assert (at.keys(), at.cluster.writes) == (None, [])
