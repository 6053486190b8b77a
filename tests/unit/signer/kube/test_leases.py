"""Leases as an API server sends them; `integration/test_replicas.py` uses a real one."""

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.leases import Lease, LeaseClient
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

LEASES = "/apis/coordination.k8s.io/v1/namespaces/own/leases"


def test_leases_with_a_label_are_read() -> None:
    cluster = FakeCluster()
    spec = {"holderIdentity": "me", "renewTime": "2026-11-22T12:00:00.000000Z"}
    cluster.put(
        LEASES,
        {"metadata": {"name": "a", "uid": "u", "labels": {"the/label": "x"}}, "spec": spec},
        {"metadata": {"name": "b", "uid": "v", "labels": {"the/label": ""}}},
        {"metadata": {"name": "other", "labels": {"another/label": ""}}},
    )
    leases = LeaseClient(FakeClient(cluster), "own").all("the/label")
    versions = [body["metadata"]["resourceVersion"] for body in cluster.objects.values()]
    assert leases == (
        Lease(
            name="a",
            uid="u",
            resource_version=versions[0],
            labels={"the/label": "x"},
            holder="me",
            renewed="2026-11-22T12:00:00.000000Z",
        ),
        Lease(
            name="b",
            uid="v",
            resource_version=versions[1],
            labels={"the/label": ""},
            holder="",
            renewed="",
        ),
    )


def test_incomplete_list_is_not_used() -> None:
    """A replica that is left out would look as if it had ended."""
    cluster = FakeCluster()
    cluster.intercept((200, {"metadata": {}, "items": [{"spec": {}}]}))
    with pytest.raises(ApiServerUnavailable):
        LeaseClient(FakeClient(cluster), "own").all("the/label")
