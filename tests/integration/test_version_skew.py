"""A signer that does not speak the node's version: told in the node's log, and left alone for long.

The signer here is the administrator, who says what one of another version would say.
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
    """Let the node's offer, which waits for its Machine, be denied for its version."""
    begun = node.start()
    wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
    [offer] = csrs.offers(node)
    admin, path = node.tenant.workload.admin, f"{csrs.CSRS}/{offer['metadata']['name']}"
    annotations = {SUPPORTED_VERSIONS_ANNOTATION: "v2,v3"}
    denied = {"type": "Denied", "status": "True", "reason": "UnsupportedVersion", "message": "no"}
    admin.patch(path, {"metadata": {"annotations": annotations}})
    admin.patch(f"{path}/approval", {"status": {"conditions": [denied]}})
    return finished(begun)


def test_refused_version_is_told_and_tried_again_in_an_hour(machines: Machines) -> None:
    node = machines.power_on()
    refused = refused_by_version(node)
    assert refused.status == 1
    assert "VersionRefused: " in refused.complaint
    assert "supports v1, and the signer supports v2,v3" in refused.complaint
    machines.register(node)
    again = node.call()
    assert again.status == 1
    assert "CoolingDown: the next attempt begins in 3" in again.complaint
    assert "the signer takes v2,v3" in again.complaint
    told = json.loads(node.call("status", "--output=json").output)
    assert told["cooldown"]["reason"] == "VersionRefused"
    assert 3200 <= told["cooldown"]["secondsLeft"] <= 3600
    assert len(csrs.of_node(node)) == 1


def test_signer_that_was_rolled_back_is_asked_at_once_by_hand(machines: Machines) -> None:
    node = machines.power_on()
    refused_by_version(node)
    machines.register(node)
    assert node.call("renew").status == 0


def test_what_the_signer_waits_for_is_told(machines: Machines) -> None:
    node = machines.power_on()
    enough(
        lambda budget: join(node, budget),
        lambda end: "the signer waits: MachineNotFound: " in end.complaint,
    )
    machines.register(node)
    assert join(node).status == 0
    assert call(node).status == 0
