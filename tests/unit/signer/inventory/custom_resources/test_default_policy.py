"""The first policy of an installation is created once."""

from signer.inventory.custom_resources.default_policy import DefaultPolicy
from signer.kinds.policy import POLICIES
from signer.kube.leases import LeaseClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient


def start(cluster: FakeCluster, *, has_policies: bool | None) -> None:
    """Let a replica that has just started create the policy."""
    client = FakeClient(cluster)
    DefaultPolicy(client, LeaseClient(client, "own"), lambda: has_policies).create_once()


def created(cluster: FakeCluster) -> list[str]:
    """Return the policies that a signer created."""
    prefix = POLICIES.collection_path()
    return [path.removeprefix(f"{prefix}/") for path in cluster.objects if path.startswith(prefix)]


def test_new_installation_gets_a_policy_for_all_clusters() -> None:
    cluster = FakeCluster()
    start(cluster, has_policies=None)
    assert cluster.requests == []
    start(cluster, has_policies=False)
    assert created(cluster) == ["default"]


def test_policy_that_an_administrator_deleted_does_not_come_back() -> None:
    cluster = FakeCluster()
    for _ in range(2):
        start(cluster, has_policies=False)
    assert created(cluster) == ["default"]


def test_installation_that_has_policies_gets_no_other() -> None:
    """Not even after the last of them was deleted."""
    cluster = FakeCluster()
    start(cluster, has_policies=True)
    start(cluster, has_policies=False)
    assert created(cluster) == []
