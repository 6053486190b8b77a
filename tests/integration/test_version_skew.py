"""A signer that does not support the node's version: the node logs it and pauses for an hour.

Here the administrator writes the denial that a signer of another version would write.
"""

import json

import pytest

from common.names import SUPPORTED_VERSIONS_ANNOTATION
from tests.harness.machines import Machines
from tests.harness.node import Call, Node, finished
from tests.harness.process import wait_until
from tests.integration import csrs
from tests.integration.node_join import call, join
from tests.integration.timeouts import enough

pytestmark = pytest.mark.usefixtures("signer")


def refused_by_version(node: Node) -> Call:
    """Wait for the node's offer, and deny it for its version."""
    begun = node.start()
    wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
    [offer] = csrs.offers(node)
    admin, path = node.tenant.workload.admin, f"{csrs.CSRS}/{offer['metadata']['name']}"
    annotations = {SUPPORTED_VERSIONS_ANNOTATION: "v2,v3"}
    denied = {"type": "Denied", "status": "True", "reason": "UnsupportedVersion", "message": "no"}
    admin.patch(path, {"metadata": {"annotations": annotations}})
    admin.patch(f"{path}/approval", {"status": {"conditions": [denied]}})
    return finished(begun)


def test_refused_version_is_logged_and_retried_in_an_hour(machines: Machines) -> None:
    node = machines.power_on()
    refused = refused_by_version(node)
    assert refused.status == 1
    assert "VersionRefused: " in refused.complaint
    assert "supports v1, and the signer supports v2,v3" in refused.complaint
    machines.register(node)
    again = node.call()
    assert again.status == 1
    assert "CoolingDown: the next attempt begins in 3" in again.complaint
    assert "the signer supports v2,v3" in again.complaint
    status = json.loads(node.call("status", "--output=json").output)
    assert status["cooldown"]["reason"] == "VersionRefused"
    assert 3200 <= status["cooldown"]["secondsLeft"] <= 3600
    assert len(csrs.of_node(node)) == 1


def test_manual_renewal_retries_at_once_after_a_rollback_of_the_signer(machines: Machines) -> None:
    node = machines.power_on()
    refused_by_version(node)
    machines.register(node)
    assert node.call("renew").status == 0


def test_pending_reason_of_the_signer_is_logged(machines: Machines) -> None:
    node = machines.power_on()
    enough(
        lambda budget: join(node, budget),
        lambda end: "the signer waits: MachineNotFound: " in end.complaint,
    )
    machines.register(node)
    assert join(node).status == 0
    assert call(node).status == 0
