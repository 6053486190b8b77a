"""Nodes that return: each gets a certificate, or logs a line that names the operator's step."""

import base64
import shutil
import time

import pytest

from tests.harness import kubeconfig
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Call, Node
from tests.harness.pki import Authority, ec_key
from tests.integration import csrs
from tests.integration.credentials import DAY, hold, let_token_run_out
from tests.integration.node_join import call, join, kubelet_conf, whoami

pytestmark = pytest.mark.usefixtures("signer")

NEW_TOKEN = "kubeadm token create"


@pytest.fixture
def node(machines: Machines) -> Node:
    """Return a node that has joined, and whose bootstrap token has expired since."""
    joined_node = machines.registered()
    assert join(joined_node).status == 0
    let_token_run_out(joined_node)
    return joined_node


def give_new_token(node: Node) -> None:
    """Do the step that the line names."""
    node.give_token(node.tenant.workload.bootstrap_token())


def the_line(ended: Call, status: int) -> str:
    """Return the last line that a call wrote."""
    assert ended.status == status, ended
    lines = ended.complaint.splitlines()
    assert all(line.startswith("kubelet-authenticator-tpm: ") for line in lines)
    return lines[-1]


def test_power_off_longer_than_certificate_and_token(node: Node) -> None:
    now = time.time()
    hold(node, node.tenant.workload.authority, now - 9 * DAY, now - 2 * DAY)
    line = the_line(call(node), 2)
    assert "Unauthorized" in line
    assert "the API server does not accept the current certificate (401)" in line
    assert NEW_TOKEN in line
    assert str(node.bootstrap_kubeconfig) in line
    give_new_token(node)
    assert call(node).status == 0
    assert whoami(node) == f"system:node:{node.name}"


def test_power_off_longer_than_the_certificate_after_kubeadm_deleted_the_credential(
    node: Node,
) -> None:
    now = time.time()
    hold(node, node.tenant.workload.authority, now - 9 * DAY, now - 2 * DAY)
    node.bootstrap_kubeconfig.unlink()
    line = the_line(call(node), 2)
    assert "Unauthorized" in line
    assert NEW_TOKEN in line
    give_new_token(node)
    assert call(node).status == 0


def test_new_image_on_the_same_machine(node: Node, fleet: Fleet) -> None:
    """The Machine keeps its claim: same TPM, new bootstrap credential, new key."""
    claimed = csrs.claim(node, fleet.management.admin)
    shutil.rmtree(node.state)
    kubelet_conf(node).unlink()
    line = the_line(join(node), 2)
    assert NEW_TOKEN in line
    assert not kubelet_conf(node).exists()
    give_new_token(node)
    assert join(node).status == 0
    assert whoami(node) == f"system:node:{node.name}"
    again = csrs.claim(node, fleet.management.admin)
    for key in ("endorsementKey", "providerID", "nodeName"):
        assert again[key] == claimed[key]


def test_new_image_on_another_mainboard_is_refused(node: Node, machines: Machines) -> None:
    """E2: the reason leads the operator to the step in docs/operate/endorsement-keys.md."""
    other = machines.power_on(name=node.name, tpm=machines.power_on().tpm)
    other.provider_id = node.provider_id
    line = the_line(join(other), 1)
    assert "EndorsementKeyMismatch" in line


def test_rotated_authority_for_clients(node: Node) -> None:
    """Every certificate of the old authority is answered with 401."""
    now = time.time()
    rotated = Authority.make(node.tenant.workload.name, ec_key())
    hold(node, rotated, now - 60, now + 7 * DAY)
    line = the_line(call(node, "renew"), 2)
    assert "does not accept the current certificate (401)" in line
    assert NEW_TOKEN in line
    give_new_token(node)
    assert call(node, "renew").status == 0


def test_rotated_authority_for_servers(node: Node, fleet: Fleet) -> None:
    """The kubeconfig is older than the authority. The node never accepts a new one by itself."""
    old_authority = base64.b64encode(fleet.second.workload.authority.pair.certificate).decode()
    path = kubelet_conf(node)
    now = base64.b64encode(node.tenant.workload.authority.pair.certificate).decode()
    path.write_text(path.read_text().replace(now, old_authority))
    shutil.rmtree(node.state)
    line = the_line(call(node), 1)
    assert "ApiServerUntrusted" in line
    assert "remove the kubeconfig and join again" in line
    path.unlink()
    give_new_token(node)
    assert join(node).status == 0
    assert whoami(node) == f"system:node:{node.name}"


def test_bootstrap_kubeconfig_of_another_cluster(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered()
    token = node.tenant.workload.bootstrap_token()
    foreign = fleet.second.workload.authority.pair.certificate
    node.bootstrap_kubeconfig.write_text(
        kubeconfig.with_token(node.tenant.workload.url, foreign, token), encoding="utf-8"
    )
    assert "ApiServerUntrusted" in the_line(join(node), 1)
    assert not kubelet_conf(node).exists()
    node.give_token(token)
    assert join(node).status == 0
