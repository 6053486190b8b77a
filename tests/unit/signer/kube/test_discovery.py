"""Discovery of the path of a kind."""

import pytest

from signer.kube.discovery import find_resource
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

GROUP = "cluster.x-k8s.io"
BOTH = {"machines/status": "Machine", "machines": "Machine"}


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ({}, None),
        ({"v1beta2": BOTH, "v1beta1": {"machines": "Machine"}}, "v1beta2"),
        ({"v1beta2": {"others": "Other"}, "v1beta1": {"machines": "Machine"}}, "v1beta1"),
        ({"v1beta2": {"machines/status": "Machine"}}, None),
    ],
    ids=["no group", "preferred", "earlier", "subresource"],
)
def test_kind_is_found_in_the_preferred_version_that_serves_it(
    kinds: dict[str, dict[str, str]], found: str | None
) -> None:
    served = {f"{GROUP}/{version}": names for version, names in kinds.items()}
    client = FakeClient(FakeCluster(kinds=served))
    path = None if found is None else f"/apis/{GROUP}/{found}/machines"
    resource = find_resource(client, (GROUP, "Machine"))
    assert (resource and resource.collection_path()) == path
