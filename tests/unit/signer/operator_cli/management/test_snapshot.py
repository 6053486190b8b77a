"""Reading the objects of the management cluster for the commands of operators."""

import pytest

from signer.inventory.cluster_api.references import Reference
from signer.operator_cli.management.snapshot import find_referenced
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import management_api

GROUP = "infrastructure.cluster.x-k8s.io"
VERSION = f"{GROUP}/v1beta1"


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("blue", "blue"),
        ("../../other/testclusters/green", "..%2F..%2Fother%2Ftestclusters%2Fgreen"),
        ("blue?watch=true", "blue%3Fwatch%3Dtrue"),
    ],
)
def test_name_in_a_reference_of_a_tenant_led_to_another_path(name: str, segment: str) -> None:
    """An object of another namespace was read with the operator's rights, and replayed as this."""
    cluster = FakeCluster(kinds={VERSION: {"testclusters": "TestCluster"}})
    reference = Reference(group=GROUP, kind="TestCluster", namespace="team-a", name=name)
    assert find_referenced(management_api(cluster), reference) is None
    assert cluster.requests[-1].path == f"/apis/{VERSION}/namespaces/team-a/testclusters/{segment}"
