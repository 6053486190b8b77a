"""`Inventory`: one contract for the fake and for the caches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Event
from typing import Any, Protocol, cast

import pytest

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters.infrastructure_watches import _KindWatch
from signer.clusters.management_cluster import ManagementCluster
from signer.clusters.workload_cluster import WorkloadCluster
from signer.fairness.compute_line import ComputeLine
from signer.fairness.memory_budget import Budgets
from signer.host_names import HostName, canonical_name
from signer.inventory import caches
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.cluster_api import machine_object as machine_reader
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, read_cluster
from signer.inventory.cluster_api.machine_object import MachineObject, read_machine, read_pool
from signer.inventory.cluster_api.references import (
    InfrastructureObject,
    read_bootstrap,
    read_infrastructure,
)
from signer.kinds.attested_node import read_attested_node
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kinds.machine import Address, Machine
from signer.kinds.node import Node
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection
from signer.kube.unreadable import Unreadable
from signer.kube.watches.cache import Cache
from signer.kube.watches.watch_threads import Watch
from signer.seams import Inventory
from tests.builders import kube_objects
from tests.builders.endorsement_keys import registration
from tests.builders.kube_objects import DIGEST, HOME, PROVIDER_ID
from tests.builders.scenario import CLUSTER
from tests.builders.stored_claims import NODE, stored
from tests.fakes.claims import StoredClaims
from tests.fakes.inventory import FakeInventory
from tests.harness import pki

ABROAD = ClusterKey(namespace="team-b", name=HOME.name)


class World(Protocol):
    """An inventory, and ways to add objects to it."""

    records: Inventory

    def machine(
        self, name: str, provider_id: str, cluster: ClusterKey, *addresses: str, node_ref: str = ""
    ) -> None: ...

    def node(self, node: Node) -> None: ...

    def key(self, **spec: Any) -> None: ...  # noqa: ANN401 # fields of spec

    def attested(self) -> None: ...


@dataclass(slots=True)
class FakeWorld:
    """The fake that tests of the pure core use."""

    store: StoredClaims = field(default_factory=StoredClaims)
    records: FakeInventory = field(init=False)

    def __post_init__(self) -> None:
        of = Cluster(
            key=HOME,
            uid="uid-blue",
            paused=False,
            client_signers=CLUSTER.client_signers,
            control_plane_hosts=CLUSTER.control_plane_hosts,
            service_networks=(),
            service_domain="cluster.local",
            auto_approve_bindings=frozenset(),
        )
        self.records = FakeInventory(of=of, store=self.store)

    def machine(
        self, name: str, provider_id: str, cluster: ClusterKey, *addresses: str, node_ref: str = ""
    ) -> None:
        made = Machine(
            name=name,
            uid=f"uid-{name}",
            provider_id=provider_id,
            deleting=False,
            bootstrap_ready=True,
            addresses=tuple(Address(type="Hostname", address=a) for a in addresses),
            node_ref=node_ref or None,
            created=None,
            bootstrap_token_id=None,
            is_pool_member=False,
            labels={},
            registered_keys=(),
            registered_keys_error=None,
        )
        self.store.machines.setdefault(cluster, []).append(made)

    def node(self, node: Node) -> None:
        self.records.nodes.append(node)

    def key(self, **spec: Any) -> None:  # noqa: ANN401 # fields of spec
        self.store.put_key(read_endorsement_key(kube_objects.endorsement_key(**spec)))

    def attested(self) -> None:
        self.store.put_node(NODE)


class NotStarted:
    """A watch that brings no events."""

    def list_again(self) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


class RealWorld:
    """The caches, filled by the test instead of by watches."""

    def __init__(self) -> None:
        ca = pki.Authority.make("test", pki.ec_key()).pair.certificate.decode()
        connection = Connection(server="https://192.0.2.1:6443", ca=ca, token="t")
        api = ApiClient("management", connection, user_agent="test")
        budgets = Budgets()
        self.budget = budgets.memory
        self.management = ManagementCluster(
            api,
            Event(),
            lambda _cluster, _name: None,
            budgets=budgets,
            infrastructure_groups=(kube_objects.INFRASTRUCTURE,),
        )
        self.workload = WorkloadCluster(
            HOME,
            "uid-blue",
            connection,
            user_agent="test",
            budgets=budgets,
            line=ComputeLine(1),
        )
        self.records = CachedInventory(self.management, self.workload)
        body = kube_objects.cluster(**{CLIENT_SIGNER_ANNOTATION: CLIENT_SIGNER})
        self.management.clusters.replace({"team-a/blue": read_cluster(body)})
        caches: list[Cache[Any]] = [
            self.management.machines,
            self.management.pools,
            self.management.bootstraps,
            self.management.keys,
            self.management.nodes,
            self.management.policies,
            self.workload.nodes,
            self.workload.bindings,
        ]
        for cache in caches:
            cache.replace({})
        self.workload.hosts.replace({"10.96.0.1": ip_address("10.96.0.1")})

    def add(self, body: dict[str, Any]) -> MachineObject:
        """Add a Machine by its object."""
        read = read_machine(body)
        self.management.machines.upsert(f"{read.cluster.namespace}/{read.name}", read)
        return read

    def machine(
        self, name: str, provider_id: str, cluster: ClusterKey, *addresses: str, node_ref: str = ""
    ) -> None:
        body = kube_objects.machine(name)
        body["metadata"]["namespace"] = cluster.namespace
        body["spec"] = {"clusterName": cluster.name, "providerID": provider_id}
        body["status"] = {
            "addresses": [{"type": "Hostname", "address": a} for a in addresses],
            "nodeRef": {"name": node_ref} if node_ref else None,
        }
        self.add(body)

    def infrastructure(self, name: str, **annotations: str) -> None:
        """Add an infrastructure object to the cache of its watch."""
        value = read_infrastructure(kube_objects.infrastructure(name, **annotations))
        self.infrastructure_cache("TestMachine").replace({f"team-a/{name}": value})

    def infrastructure_cache(self, kind: str) -> Cache[InfrastructureObject]:
        """Return the cache of a new watch of that kind."""
        cache: Cache[InfrastructureObject] = Cache(f"{kind}s")
        watches = self.management._infrastructure._watches
        watches[kube_objects.INFRASTRUCTURE, kind] = _KindWatch(cache, cast("Watch", NotStarted()))
        return cache

    def node(self, node: Node) -> None:
        self.workload.nodes.upsert(node.name, node)

    def key(self, **spec: Any) -> None:  # noqa: ANN401 # fields of spec
        self.management.keys.upsert(
            DIGEST, read_endorsement_key(kube_objects.endorsement_key(**spec))
        )

    def attested(self) -> None:
        read = read_attested_node(stored(NODE))
        self.management.nodes.upsert(f"team-a/{read.name}", read)


@pytest.fixture(params=[FakeWorld, RealWorld])
def world(request: pytest.FixtureRequest) -> World:
    made: Callable[[], World] = request.param
    return made()


def test_cluster_is_returned(world: World) -> None:
    cluster = world.records.cluster()
    assert (cluster.key, cluster.uid) == (HOME, "uid-blue")
    assert cluster.client_signers == {CLIENT_SIGNER}


def test_machines_are_found_in_their_own_cluster_only(world: World) -> None:
    world.machine("machine-1", PROVIDER_ID, HOME)
    world.machine("machine-1", PROVIDER_ID, ABROAD)
    world.machine("machine-2", "metal://2", HOME)
    (result,) = world.records.machines(PROVIDER_ID)
    assert (result.name, result.provider_id) == ("machine-1", PROVIDER_ID)
    assert world.records.machines("metal://3") == () or not world.records.machines("metal://3")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("node-1", "node-1"),
        ("NODE-1.", "node-1"),
        ("n\u00f6de-1", "n\u00f6de-1"),
        ("xn--nde-1-jua", "n\u00f6de-1"),
        ("192.0.2.1", IPv4Address("192.0.2.1")),
        ("::ffff:192.0.2.1", IPv4Address("192.0.2.1")),
        ("2001:DB8::0001", IPv6Address("2001:db8::1")),
    ],
)
def test_machines_are_found_by_the_canonical_names_of_their_addresses(
    world: World, written: str, name: HostName
) -> None:
    world.machine("machine-1", PROVIDER_ID, HOME, "other", written)
    world.machine("machine-2", "metal://2", HOME, written)
    world.machine("machine-3", "metal://3", ABROAD, written)
    world.machine("machine-4", "metal://4", HOME, "another")
    result = world.records.machines_with_host_name(name)
    assert {m.name for m in result} == {"machine-1", "machine-2"}


def test_addresses_of_a_machine_are_folded_once_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Indexing folded 1,000 of them at each change, when they came and again when they went."""
    folded: list[str] = []

    def fold(text: str) -> HostName:
        folded.append(text)
        return canonical_name(text)

    for module in (machine_reader, caches):
        monkeypatch.setattr(module, "canonical_name", fold)
    body = kube_objects.machine()
    body["status"]["addresses"] = [
        {"type": "InternalDNS", "address": f"node-{number}"} for number in range(1000)
    ]
    read = read_machine(body)
    assert (len(folded), len(read.addresses), len(read.host_names)) == (256, 256, 256)
    world = RealWorld()
    folded.clear()
    world.management.machines.upsert("team-a/machine-1", read)
    world.management.machines.delete("team-a/machine-1")
    assert folded == []


def test_machines_are_found_by_node_ref_in_their_own_cluster_only(world: World) -> None:
    world.machine("machine-1", PROVIDER_ID, HOME, node_ref="node-1")
    world.machine("machine-2", "metal://2", HOME, node_ref="node-2")
    world.machine("machine-3", "metal://3", ABROAD, node_ref="node-1")
    world.machine("machine-4", "metal://4", HOME)
    (result,) = world.records.machines_with_node_ref("node-1")
    assert result.name == "machine-1"
    assert not world.records.machines_with_node_ref("")


def test_all_machines_of_one_provider_id_are_returned(world: World) -> None:
    world.machine("machine-1", PROVIDER_ID, HOME)
    world.machine("machine-2", PROVIDER_ID, HOME)
    assert {m.name for m in world.records.machines(PROVIDER_ID)} == {"machine-1", "machine-2"}


def test_nodes_are_found_by_name_and_provider_id(world: World) -> None:
    node = Node(name="node-1", provider_id=PROVIDER_ID)
    world.node(node)
    world.node(Node(name="node-2", provider_id=""))
    assert world.records.node("node-1") == node
    assert world.records.node("node-3") is None
    assert list(world.records.nodes_with_provider_id(PROVIDER_ID)) == [node]


def test_keys_and_registrations_are_found(world: World) -> None:
    here = {"clusterNamespace": HOME.namespace, "clusterName": HOME.name, "nodeName": "node-1"}
    there = {**here, "clusterNamespace": ABROAD.namespace}
    world.key(registeredFor=[here, there])
    result = world.records.endorsement_key(DIGEST)
    assert result is not None
    assert result.name == DIGEST
    assert world.records.endorsement_key("cd" * 32) is None
    entry = registration(HOME, node_name="node-1")
    assert list(world.records.registrations("node-1")) == [(DIGEST, entry)]
    assert not world.records.registrations("node-2")


@pytest.mark.parametrize("field", ["providerID", "machineName", "nodeName"])
def test_registrations_are_found_by_each_field(world: World, field: str) -> None:
    world.key(
        registeredFor=[
            {"clusterNamespace": HOME.namespace, "clusterName": HOME.name, field: "it"},
        ]
    )
    assert len(world.records.registrations("it", "other", "it")) == 1
    assert not world.records.registrations("other")


def test_attested_nodes_are_found(world: World) -> None:
    world.attested()
    result = world.records.attested_node("node-1")
    assert result is not None
    assert (result.cluster, result.endorsement_key) == (HOME, DIGEST)
    assert list(world.records.attested_nodes_with_provider_id(PROVIDER_ID)) == [result]
    assert world.records.attested_node("node-2") is None
    assert not world.records.attested_nodes_with_provider_id("metal://2")


def test_attested_nodes_are_found_by_key_while_their_machine_exists(world: World) -> None:
    world.attested()
    assert not world.records.attested_nodes_with_key(DIGEST)
    world.machine("machine-9", PROVIDER_ID, HOME)
    assert not world.records.attested_nodes_with_key(DIGEST)
    world.machine(NODE.machine_name, PROVIDER_ID, HOME)
    result = world.records.attested_node("node-1")
    assert list(world.records.attested_nodes_with_key(DIGEST) or ()) == [result]
    assert not world.records.attested_nodes_with_key("cd" * 32)


def test_pool_member_with_a_machine_is_returned_once() -> None:
    """A pool and the Machine of its member are not two Machines."""
    world = RealWorld()
    pool = read_pool(kube_objects.pool("pool-1", PROVIDER_ID, "metal://2"))
    world.management.pools.upsert("team-a/pool-1", pool)
    (member,) = world.records.machines(PROVIDER_ID)
    assert (member.is_pool_member, member.name) == (True, "pool-1")
    world.machine("machine-1", PROVIDER_ID, HOME)
    (member,) = world.records.machines(PROVIDER_ID)
    assert (member.is_pool_member, member.name) == (False, "machine-1")


def test_objects_that_a_machine_refers_to_are_joined() -> None:
    world = RealWorld()
    world.add(kube_objects.machine())
    world.infrastructure("infra-machine-1", **kube_objects.RECORD)
    bootstrap = read_bootstrap(kube_objects.bootstrap("config", "abcdef.0123456789abcdef"))
    world.management.bootstraps.upsert("team-a/config-machine-1", bootstrap)
    (result,) = world.records.machines(PROVIDER_ID)
    assert [r.spki_sha256.hex() for r in result.registered_keys] == [DIGEST]
    assert (result.registered_keys_error, result.bootstrap_token_id) == (None, "abcdef")


def test_infrastructure_that_is_not_listed_yet_is_unavailable() -> None:
    world = RealWorld()
    world.add(kube_objects.machine())
    world.infrastructure_cache("TestMachine")
    with pytest.raises(ApiServerUnavailable, match="TestMachines are not known yet"):
        world.records.machines(PROVIDER_ID)


def test_control_plane_hosts_come_from_both_clusters() -> None:
    world = RealWorld()
    world.workload.bindings.upsert("kubeadm:node-autoapprove-x", "kubeadm:node-autoapprove-x")
    cluster = world.records.cluster()
    assert cluster.control_plane_hosts >= {
        *("api.example", "kubernetes"),
        *map(ip_address, ("192.0.2.1", "10.96.0.1")),
    }
    assert cluster.auto_approve_bindings == {"kubeadm:node-autoapprove-x"}


def test_a_verdict_names_some_of_the_bindings_of_a_hostile_cluster() -> None:
    """The log line of each verdict had all names: 117 MiB within the budget of one tenant."""
    world = RealWorld()
    for number in range(30):
        world.workload.bindings.upsert(f"b{number}", f"b{number}")
    assert world.records.cluster().auto_approve_bindings == {f"b{number}" for number in range(10)}


@pytest.mark.parametrize("signer", [CLIENT_SIGNER, None])
def test_infrastructure_cluster_may_name_the_signer(signer: str | None) -> None:
    world, body = RealWorld(), kube_objects.cluster()
    infrastructure = {**kube_objects.infrastructure("blue"), "kind": "TestCluster"}
    infrastructure["status"] = {"kubeletClientCertificateSigner": signer}
    cache = world.infrastructure_cache("TestCluster")
    cache.replace({"team-a/blue": read_infrastructure(infrastructure)})
    world.management.clusters.upsert("team-a/blue", read_cluster(body))
    assert world.records.cluster().client_signers == frozenset()
    body["spec"]["security"] = {"kubeletAuthentication": True}
    world.management.clusters.upsert("team-a/blue", read_cluster(body))
    assert world.records.cluster().client_signers == {signer} - {None}
    cache.replace({})
    assert world.records.cluster().client_signers == frozenset()
    del body["spec"]["infrastructureRef"]
    world.management.clusters.upsert("team-a/blue", read_cluster(body))
    assert world.records.cluster().client_signers == frozenset()


def test_cluster_with_a_new_uid_is_unavailable() -> None:
    """Exchanges of the earlier Cluster are bound to its UID."""
    world = RealWorld()
    body = kube_objects.cluster()
    body["metadata"]["uid"] = "another"
    world.management.clusters.upsert("team-a/blue", read_cluster(body))
    with pytest.raises(ApiServerUnavailable, match="does not exist any more"):
        world.records.cluster()


def test_nothing_is_decided_while_objects_of_the_namespace_exceed_its_budget() -> None:
    """A Machine that is not cached may have the same host name as the one that is verified."""
    world = RealWorld()
    world.budget._per_tenant = 0
    body = kube_objects.machine("too-much")
    assert not world.management.machines.upsert("team-a/too-much", read_machine(body))
    with pytest.raises(ApiServerUnavailable, match="Machines of namespace team-a exceed"):
        world.records.cluster()


@pytest.mark.parametrize("kind", ["nodes", "bindings", "hosts"])
def test_nothing_is_decided_while_the_workload_cluster_exceeds_the_budget(kind: str) -> None:
    """A Node that other tenants kept out of the memory did not exist for M4, M6 and E2."""
    world = RealWorld()
    world.budget._total = world.budget._reserved = 0
    cache: Cache[object] = getattr(world.workload, kind)
    assert not cache.hold("too-much", 1)
    with pytest.raises(ApiServerUnavailable, match=r"of namespace team-a exceed its memory budget"):
        world.records.cluster()


def test_nothing_is_decided_while_infrastructure_objects_exceed_the_budget() -> None:
    world = RealWorld()
    world.infrastructure_cache("TestMachine")._incomplete.add("team-a")
    with pytest.raises(ApiServerUnavailable, match="TestMachines of namespace team-a exceed"):
        world.records.cluster()


def refuse(cache: Cache[Any], key: str) -> None:
    cache.refuse(key, Unreadable(key=key, problem="nested too deeply"))


@pytest.mark.parametrize(
    "kind", ["clusters", "machines", "pools", "bootstraps", "nodes", "TestMachine", "bindings"]
)
def test_nothing_is_decided_beside_an_object_that_cannot_be_read(kind: str) -> None:
    """It may name what is verified. It stopped the other namespaces, too."""
    world = RealWorld()
    if kind == "TestMachine":
        cache: Cache[Any] = world.infrastructure_cache(kind)
    else:
        cache = getattr(world.workload if kind == "bindings" else world.management, kind)
    world.records.cluster()
    refuse(cache, "team-b/deep")
    if kind != "bindings":
        world.records.cluster()
        refuse(cache, "team-a/deep")
    with pytest.raises(ApiServerUnavailable, match=r"deep( and 1 more)? cannot be read"):
        world.records.cluster()


def test_node_and_key_that_cannot_be_read_are_undecided_by_name() -> None:
    """Root on a node would stop its Cluster; a key that is not seen could be banned."""
    world = RealWorld()
    refuse(world.workload.nodes, "deep")
    refuse(world.management.keys, "ab" * 32)
    world.records.cluster()
    assert world.records.node("other") is None
    assert not world.records.nodes_with_provider_id("test://1")
    assert world.records.endorsement_key("cd" * 32) is None
    for read in (
        lambda: world.records.node("deep"),
        lambda: world.records.endorsement_key("ab" * 32),
        lambda: world.records.registrations("test://1"),
    ):
        with pytest.raises(ApiServerUnavailable, match="cannot be read"):
            read()


def test_request_and_unknown_key_that_cannot_be_read_are_left_out() -> None:
    world = RealWorld()
    world.workload.csrs.replace({})
    refuse(world.workload.csrs, "deep")
    refuse(world.management.key_requests, "team-a/deep")
    world.records.cluster()
    assert world.workload.csrs.get("deep") is None


@pytest.mark.parametrize("missing", ["bindings", "hosts"])
def test_cluster_is_unavailable_until_its_workload_caches_have_synced(missing: str) -> None:
    world = RealWorld()
    setattr(world.workload, missing, Cache(missing))
    with pytest.raises(ApiServerUnavailable, match="not known yet"):
        world.records.cluster()
