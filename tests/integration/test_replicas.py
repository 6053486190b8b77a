"""Replicas share the Clusters: each is served by one, and taken over from one that ends."""

import os
import random
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from signer.kube.leases import Lease, LeaseClient, format_micro_time
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import parse_kubeconfig
from tests.harness import pki
from tests.harness.api_relay import ApiRelay, relay
from tests.harness.client import Client
from tests.harness.clocks import shifted
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE, ManagementCluster
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer, opt_in, wait_until_unshared, without_leases
from tests.integration import csrs
from tests.integration.credentials import credential_id
from tests.integration.policies import stored_policy
from tests.integration.scripted_node import Script

PATIENCE = {"timeoutSeconds": 90}
MANY = 12
"""Clusters without kubeconfig Secrets: so many that each replica gets some of them."""
ENOUGH = 2
"""Joins of one cluster, also on a machine where the first takes as long as all restarts."""
RACES = 20
"""Joins until one of two replicas was slower than the other, which most of them show."""
LABEL = "test/label"
SLOW_RENEWALS = 7
"""Renewals of one replica, each of which takes 4.5 seconds: longer than two Leases are valid."""
REASON = "AuthorityShared"


@pytest.fixture(scope="module")
def many(fleet: Fleet) -> Iterator[str]:
    """Create Clusters that the replicas share, and delete them at the end."""
    namespace = f"many-{secrets.token_hex(4)}"
    fleet.management.create_namespace(namespace)
    endpoint = fleet.first.workload.url
    for number in range(MANY):
        fleet.management.create_cluster(
            namespace, f"c-{number}", endpoint=endpoint, annotations=OPT_IN
        )
    yield namespace
    for number in range(MANY):
        path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/c-{number}"
        fleet.management.admin.delete(path)


@pytest.fixture(scope="module")
def alone(fleet: Fleet, signer: Signer) -> Iterator[Fleet]:
    """Stop the signer of the other tests meanwhile."""
    for tenant in fleet.tenants:
        opt_in(fleet, tenant)
    signer.stop()
    yield fleet
    signer.start()


def wait_until_shared(*signers: Signer) -> None:
    """Wait until each Cluster has one of these replicas, and each replica some Clusters."""

    def is_shared() -> bool:
        shares = [signer.states().keys() for signer in signers]
        every = set().union(*shares)
        return all(shares) and sum(map(len, shares)) == len(every) >= MANY

    wait_until(is_shared, what="the replicas share the Clusters")


@pytest.mark.usefixtures("many")
def test_clusters_of_a_killed_replica_are_taken_over(
    alone: Fleet, machines: Machines, tmp_path: Path
) -> None:
    replicas = [Signer(alone, tmp_path / name) for name in ("first", "second")]
    for replica in replicas:
        replica.start()
        replica.wait_until_ready()
    wait_until_shared(*replicas)
    served = (alone.first.namespace, alone.first.name)
    [victim] = [replica for replica in replicas if served in replica.states()]
    [other] = [replica for replica in replicas if replica is not victim]
    node = machines.registered(alone.first)
    assert node.call().status == 0
    assert not [line for line in other.lines if line.get("node") == node.name]
    victim.kill()
    wait_until(lambda: other.states().get(served) == "Served", what="the other takes over")
    assert machines.registered(alone.first).call().status == 0
    other.stop()


@pytest.mark.usefixtures("many")
def test_no_join_fails_while_all_replicas_are_replaced(
    alone: Fleet, machines: Machines, tmp_path: Path
) -> None:
    """As a Deployment does it: a new replica is ready before an old one gets SIGTERM."""
    replaced = Event()
    old = [Signer(alone, tmp_path / f"old-{number}") for number in range(2)]
    new = [Signer(alone, tmp_path / f"new-{number}") for number in range(2)]
    for replica in old:
        replica.start()
        replica.wait_until_ready()
    wait_until_shared(*old)

    def join(tenant_number: int) -> list[int]:
        statuses: list[int] = []
        while not replaced.is_set() or len(statuses) < ENOUGH:
            node = machines.registered(alone.tenants[tenant_number], settings=PATIENCE)
            statuses.append(node.call().status)
        return statuses

    with ThreadPoolExecutor(2) as pool:
        joins = [pool.submit(join, number) for number in range(2)]
        try:
            for before, after in zip(old, new, strict=True):
                after.start()
                after.wait_until_ready()
                before.stop()
        finally:
            replaced.set()
        statuses = [status for each in joins for status in each.result()]
    assert set(statuses) == {0}
    wait_until_shared(*new)
    for replica in new:
        assert not [line for line in replica.lines if line["level"] == "error"]
        replica.stop()


def test_certificate_that_the_slower_of_two_replicas_recorded_leaves_the_claim(
    alone: Fleet, machines: Machines, tmp_path: Path
) -> None:
    """Both serve a Cluster for some seconds of a rolling update; 25 of 200 claims kept one more."""
    tenant, nodes = alone.first, list[Node]()
    first = Signer(alone, tmp_path / "first")
    second = Signer(alone, tmp_path / "second").share_with_no_other()

    def lost() -> list[str]:
        lines = [*first.lines, *second.lines]
        return [line["node"] for line in lines if line["event"] == "certificate was not released"]

    with first, second:
        served = {(each.namespace, each.name): "Served" for each in alone.tenants}
        for signer in (first, second):
            wait_until(lambda s=signer: served.items() <= s.states().items(), what="both serve")  # type: ignore[misc]
        while not lost() and len(nodes) < RACES:
            nodes.append(machines.registered(tenant))
            assert nodes[-1].call().status == 0
        wait_until(lambda: bool(lost()), what="a replica was slower")
        wait_until(
            lambda: all(len(recorded(alone, node)) == 1 for node in nodes),
            what="each claim has the certificate of its node alone",
        )
    for node in nodes:
        assert recorded(alone, node) == [credential_id(node.call().certificate.encode())]


def recorded(fleet: Fleet, node: Node) -> list[str]:
    """Return the certificates in the claim of a node."""
    ids: list[str] = csrs.claim(node, fleet.management.admin)["credentialIDs"]
    return ids


def test_replicas_write_one_status_of_the_policy(alone: Fleet, many: str, tmp_path: Path) -> None:
    selector = {"clusterSelector": {"namespaces": [many]}}
    with (
        stored_policy(alone, f"of-{many}", selector) as policy,
        Signer(alone, tmp_path / "first") as first,
        Signer(alone, tmp_path / "second") as second,
    ):
        wait_until_shared(first, second)
        expected = {(many, f"c-{number}"): "KubeconfigRefused" for number in range(MANY)}
        wait_until(lambda: policy.states == expected, what="the status has every Cluster")
        assert policy.status["selectedClusters"] == MANY


@pytest.mark.usefixtures("many")
def test_replicas_without_permission_for_leases_serve_every_cluster(
    alone: Fleet, tmp_path: Path
) -> None:
    with Signer(alone, tmp_path / "first") as first, Signer(alone, tmp_path / "second") as second:
        wait_until_shared(first, second)
        with without_leases(alone):
            wait_until_unshared(first, second)
            wait_until(
                lambda: len(first.states()) == len(second.states()) >= MANY,
                what="both serve every Cluster",
            )
            alarms = [line for line in first.lines if line["event"].startswith("this replica")]
            assert alarms[0]["alarm"]
        wait_until_shared(first, second)


@pytest.mark.usefixtures("many")
def test_slow_management_cluster_does_not_make_all_replicas_serve_everything(
    alone: Fleet, tmp_path: Path
) -> None:
    """Each request took 3 to 6 seconds, and the load of all Clusters from all replicas came on top.

    A renewal and a list waited for each other, so each Lease lapsed.
    """
    management = alone.management
    with relay(management, tmp_path / "relay") as slow:
        kubeconfig = management.signer_kubeconfig().replace(management.url, slow.url)
        first, second = (
            Signer(alone, tmp_path / name, kubeconfig=kubeconfig) for name in ("first", "second")
        )
        with first, second:
            wait_until_shared(first, second)
            shared = [sharing_lines(signer) for signer in (first, second)]
            slow.latency = lambda: random.uniform(3.0, 6.0)
            slow.requests.clear()
            wait_until(
                lambda: renewals(slow) >= 2 * SLOW_RENEWALS,
                what="both replicas have renewed their Leases",
                seconds=120,
            )
            assert [sharing_lines(signer) for signer in (first, second)] == shared
            slow.latency = float
            assert first.metric("node_attestation_replicas") == 2
            assert second.metric("node_attestation_replicas") == 2


def renewals(slow: ApiRelay) -> int:
    """Return how many renewals of Leases have begun."""
    return sum(method == "PATCH" and "/leases/" in path for method, path in slow.requests)


def sharing_lines(signer: Signer) -> list[str]:
    """Return the lines of the log that say which replicas share."""
    return [line["event"] for line in signer.lines if "replica" in line["event"]]


@pytest.mark.usefixtures("many")
def test_replica_with_a_wrong_clock_leaves_the_clusters_to_the_others(
    alone: Fleet, machines: Machines, tmp_path: Path
) -> None:
    """All joins of its share stopped, since it ignored each new offer as expired."""
    with Signer(alone, tmp_path / "right") as right:
        right.wait_until_ready()
        wrong = Signer(alone, tmp_path / "wrong")
        wrong.environment = {**os.environ, **shifted(1200)}
        with wrong:

            def alarms() -> list[bool]:
                lines = [line for line in wrong.lines if line["event"].startswith("clock differs")]
                return [line["alarm"] for line in lines]

            wait_until(lambda: alarms() == [True], what="the skew of the clock is found")
            assert (wrong.metric("node_attestation_clock_skew_seconds") or 0) > 1190
            assert not wrong.ask("/readyz").ok
            assert wrong.ask("/healthz").ok
            for tenant in alone.tenants:
                assert machines.registered(tenant).call().status == 0
            assert wrong.states() == {}
            assert len(right.states()) >= MANY
            assert right.metric("node_attestation_clock_skew_seconds") == 0


def test_authority_of_two_clusters_is_refused_to_both_by_the_replicas_that_serve_them(
    alone: Fleet, machines: Machines, tmp_path: Path
) -> None:
    """Each replica compared only the Clusters that it served, so both issued certificates."""
    first, second = alone.tenants
    management = alone.management

    def answer_of_new_node(tenant: WorkloadTenant) -> tuple[Client, str]:
        script, name = Script(machines.registered(tenant)), csrs.new_name()
        script.put(name, script.encoded(name))
        return script.client, name

    def is_refused() -> bool:
        """Return whether a new answer in the first Cluster is refused, not decided."""
        client, name = answer_of_new_node(first)
        wait_until(
            lambda: (
                csrs.is_waiting_for(client, name, REASON) or bool(csrs.conditions(client, name))
            ),
            what=f"a verdict on {name}",
        )
        return not csrs.conditions(client, name)

    with (
        Signer(alone, tmp_path / "first", namespace=first.namespace) as replica,
        with_authority(management, second, first.workload.authority.pair),
    ):
        assert not is_refused()
        with Signer(alone, tmp_path / "second", namespace=second.namespace) as other:
            key = (second.namespace, second.name)
            wait_until(lambda: other.states().get(key) == REASON, what="the second is refused")
            wait_until(is_refused, what="the first is refused, some seconds later")
            client, name = answer_of_new_node(second)
            csrs.waiting_for(client, name, REASON)
            assert csrs.certificate(client, name) == b""

            def others() -> set[tuple[str, bool]]:
                return {
                    (line["detail"], line["alarm"])
                    for signer in (replica, other)
                    for line in signer.lines
                    if (line["event"], line.get("reason")) == ("verdict", REASON)
                }

            named = {("team-a/workload", True), ("team-b/workload", True)}
            # The signer logs a verdict after it has annotated the request.
            wait_until(lambda: others() == named, what="each line names the other Cluster")


@contextmanager
def with_authority(
    management: ManagementCluster, tenant: WorkloadTenant, pair: pki.Pair
) -> Iterator[None]:
    """Give a Cluster another certificate authority."""
    management.replace_authority(tenant.namespace, tenant.name, pair)
    try:
        yield
    finally:
        own = tenant.workload.authority.pair
        management.replace_authority(tenant.namespace, tenant.name, own)


def test_lease_client_on_a_real_api_server(fleet: Fleet, request: pytest.FixtureRequest) -> None:
    """With the signer's own permissions."""
    connection = parse_kubeconfig(fleet.management.signer_kubeconfig().encode())
    api = ApiClient("management", connection, user_agent="test")
    request.addfinalizer(api.close)
    client = LeaseClient(api, NAMESPACE)
    name = f"lease-{secrets.token_hex(4)}"

    def renew(second: int, version: str | None) -> Lease | None:
        time = format_micro_time(datetime(2026, 11, 22, 12, 0, second, tzinfo=UTC))
        return client.renew(
            name,
            holder="me",
            seconds=10,
            labels={LABEL: ""},
            time=time,
            version=version,
        )

    assert renew(1, "1") is None, "it does not exist"
    created = renew(1, None)
    assert created is not None
    assert (created.name, created.holder, created.labels) == (name, "me", {LABEL: ""})
    assert client.all(LABEL) == (created,)
    assert renew(2, None) is None, "it exists"
    renewed = renew(2, created.resource_version)
    assert renewed is not None
    assert renewed.renewed == format_micro_time(datetime(2026, 11, 22, 12, 0, 2, tzinfo=UTC))
    assert renew(3, created.resource_version) is None, "it was renewed since"
    assert client.all(f"{LABEL}=") == (renewed,)
    assert client.all(f"{LABEL}=other") == ()
    client.delete_unchanged(created)
    assert client.all(LABEL) == (renewed,)
    client.delete_unchanged(renewed)
    assert client.all(LABEL) == ()
    client.delete(name)
    for holder in ("team-a/blue", "team-b/green"):
        client.assign(name, holder=holder, labels={LABEL: "1"})
        [assigned] = client.all(f"{LABEL}=1")
        assert (assigned.holder, assigned.renewed) == (holder, "")
    client.delete(name)
