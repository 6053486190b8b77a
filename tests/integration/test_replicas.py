"""Replicas share the Clusters: each is served by one, and taken over from one that ends."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from signer.kube.client import ApiClient
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.leases import LeaseClient
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer, opt_in, wait_until_unshared, without_leases
from tests.integration.policies import stored_policy

PATIENCE = {"timeoutSeconds": 90}
MANY = 12
"""Clusters without kubeconfig Secrets: so many that each replica gets some of them."""
LABEL = "test/label"


@pytest.fixture(scope="module")
def many(fleet: Fleet) -> str:
    """Create Clusters that the replicas share, and return their namespace."""
    namespace = f"many-{secrets.token_hex(4)}"
    fleet.management.create_namespace(namespace)
    endpoint = fleet.first.workload.url
    for number in range(MANY):
        fleet.management.create_cluster(
            namespace, f"c-{number}", endpoint=endpoint, annotations=OPT_IN
        )
    return namespace


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
        statuses = []
        for _ in count():
            node = machines.registered(alone.tenants[tenant_number], settings=PATIENCE)
            statuses.append(node.call().status)
            if replaced.is_set():
                break
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
    assert len(statuses) > len(joins)
    assert set(statuses) == {0}
    wait_until_shared(*new)
    for replica in new:
        assert not [line for line in replica.lines if line["level"] == "error"]
        replica.stop()


def test_replicas_write_one_status_of_the_policy(alone: Fleet, many: str, tmp_path: Path) -> None:
    selector = {"clusterSelector": {"namespaces": [many]}}
    with (
        stored_policy(alone, f"of-{many}", selector) as policy,
        Signer(alone, tmp_path / "first").use_policy_objects() as first,
        Signer(alone, tmp_path / "second").use_policy_objects() as second,
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


def test_lease_client_on_a_real_api_server(fleet: Fleet, request: pytest.FixtureRequest) -> None:
    """With the signer's own permissions."""
    connection = parse_kubeconfig(fleet.management.signer_kubeconfig().encode())
    api = ApiClient("management", connection, user_agent="test")
    request.addfinalizer(api.close)
    client = LeaseClient(api, NAMESPACE)
    name = f"lease-{secrets.token_hex(4)}"

    def renew(second: int) -> None:
        now = datetime(2026, 11, 22, 12, 0, second, tzinfo=UTC)
        client.renew(name, holder="me", seconds=10, labels={LABEL: ""}, now=now)

    renew(1)
    [created] = client.all(LABEL)
    assert (created.name, created.holder, created.labels) == (name, "me", {LABEL: ""})
    renew(2)
    [renewed] = client.all(LABEL)
    assert renewed.renewed != created.renewed
    client.delete_unchanged(created)
    assert client.all(LABEL) == (renewed,)
    client.delete_unchanged(renewed)
    assert client.all(LABEL) == ()
    client.delete(name)
