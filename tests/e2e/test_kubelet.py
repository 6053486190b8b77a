"""The real kubelet and Cluster API's own manager, with our plugin and signer between them."""

from tests.e2e.joined import Joined
from tests.harness import capi
from tests.harness.process import wait_until


def test_node_joins_and_cluster_api_finds_it(joined: Joined) -> None:
    joined.wait_until_ready()
    node = joined.object()
    assert node["spec"]["providerID"] == joined.node.provider_id
    joined.wait_until_used(joined.certificate())

    def found() -> bool:
        status = capi.machine(joined.fleet, joined.node)["status"]
        return bool(status.get("nodeRef") == {"name": joined.node.name})

    wait_until(found, what="Cluster API has found the Node")
