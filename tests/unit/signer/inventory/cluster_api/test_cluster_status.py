"""The condition of a Cluster about bindings: where it is written, and since when it is so."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from signer.inventory.cluster_api.cluster import ClusterCondition, read_cluster
from signer.inventory.cluster_api.cluster_status import ClusterStatusClient
from tests.builders import kube_objects
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EARLIER = "2026-11-22T11:00:00Z"
STAYS = ClusterCondition(removed=False, reason="NodesNotAttested", message="they stay")
CLUSTERS = "/apis/cluster.x-k8s.io/{}/namespaces/team-a/clusters"


def written(version: str, earlier: ClusterCondition | None, condition: ClusterCondition) -> object:
    """Write a condition to a management cluster; return the status that was applied."""
    api = FakeCluster()
    api.kinds = {f"cluster.x-k8s.io/{version}": {"clusters": "Cluster"}}
    api.put(CLUSTERS.format(version), kube_objects.cluster())
    cluster = replace(read_cluster(kube_objects.cluster()), bindings=earlier)
    ClusterStatusClient(FakeClient(api)).write(cluster, condition, NOW)
    [request] = api.writes
    assert isinstance(request.body, dict)
    assert request.path == f"{CLUSTERS.format(version)}/blue/status"
    assert request.body["metadata"]["resourceVersion"] == "101"
    return request.body["status"]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_condition_is_where_cluster_api_keeps_those_of_v1beta2(version: str) -> None:
    entry = {
        "type": "AutoApproveBindingsRemoved",
        "status": "False",
        "reason": "NodesNotAttested",
        "message": "they stay",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
    }
    status = {"conditions": [entry]}
    assert written(version, None, STAYS) == (
        {"v1beta2": status} if version == "v1beta1" else status
    )


@pytest.mark.parametrize("removed", [False, True])
def test_time_changes_with_the_status_and_not_with_the_message(*, removed: bool) -> None:
    earlier = replace(STAYS, message="for two nodes", since=EARLIER)
    status = written("v1beta2", earlier, replace(STAYS, removed=removed))
    expected = "2026-11-22T12:00:00Z" if removed else EARLIER
    assert expected in str(status)


def test_another_cluster_of_the_same_name_gets_no_condition() -> None:
    """The API server ignores the UID in a write to a subresource."""
    api, body = FakeCluster(), kube_objects.cluster()
    api.put(CLUSTERS.format("v1beta2"), {**body, "metadata": {**body["metadata"], "uid": "new"}})
    ClusterStatusClient(FakeClient(api)).write(read_cluster(body), STAYS, NOW)
    assert api.writes == []


def test_condition_that_the_cluster_has_is_not_written_again() -> None:
    cluster = replace(read_cluster(kube_objects.cluster()), bindings=STAYS)
    api = FakeCluster()
    ClusterStatusClient(FakeClient(api)).write(cluster, replace(STAYS, since=EARLIER), NOW)
    assert api.requests == []
