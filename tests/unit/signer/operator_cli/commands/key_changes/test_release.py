"""`release` warns if the key is not held in the Cluster that it names."""

import pytest

from signer.model import ClusterKey
from signer.operator_cli.commands.key_changes import release
from tests.fakes.management_api import Console, FakeManagement

KEY = "ab" * 32
HOLDER = {"clusterNamespace": "team-a", "clusterName": "c1", "nodeName": "node-1"}


@pytest.mark.parametrize(
    ("spec", "cluster", "warned"),
    [
        ({"heldBy": HOLDER}, "c1", False),
        ({}, "c1", False),
        ({"heldBy": HOLDER}, "c11", True),
    ],
    ids=["holder", "no holder", "typing error"],
)
def test_release_from_another_cluster_than_the_holders_is_a_warning(
    spec: dict[str, object],
    cluster: str,
    warned: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """The next owner of the hardware waited, and nothing said why."""
    management = FakeManagement()
    management.put_key(KEY, **spec)
    former = ClusterKey(namespace="team-a", name=cluster)
    arguments = {"key": KEY, "cluster": former, "provider_id": None, "yes": True}
    console = Console(management, arguments)
    assert release.run(console.session()) == 0
    released = {"clusterNamespace": "team-a", "clusterName": cluster}
    assert management.key(KEY)["releasedFrom"] == [released]
    warning = "node node-1 of Cluster team-a/c1 holds this key: a release from Cluster team-a/c11"
    assert (warning in console.complaint) is warned
