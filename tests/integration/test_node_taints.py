"""The taint of Nodes whose nodes no longer attest, on an API server with NodeRestriction."""

import pytest

from tests.harness.client import ApiError
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING, SIGNER
from tests.integration import csrs
from tests.integration.credentials import client_of
from tests.integration.kubelet_nodes import NODES, PREFIX, body_of

KEY = "attestation.cluster.x-k8s.io/unattested"
OTHER = {"key": "example.com/maintenance", "effect": "NoSchedule"}
PAST = {"spec": {"renewalDeadline": "2026-01-01T00:00:00Z"}}


def taints(node: Node) -> set[tuple[str, str]]:
    """Return keys and effects of the taints of a Node that neither kubelet nor Kubernetes wrote."""
    spec = node.tenant.workload.admin.get(f"{NODES}/{node.name}")["spec"]
    found = {(taint["key"], taint["effect"]) for taint in spec.get("taints", ())}
    return {(key, effect) for key, effect in found if not key.startswith("node.kubernetes.io/")}


def wait_for_taint(node: Node, *, tainted: bool) -> None:
    """Wait until a Node has the taint of the signer or not, and the other one in any case.

    A label of the signer that an administrator writes lets the next round begin.
    """
    label = {"metadata": {"labels": {f"{PREFIX}attested": "true"}}}
    node.tenant.workload.admin.patch(f"{NODES}/{node.name}", label)
    expected = {(OTHER["key"], OTHER["effect"])} | ({(KEY, "NoSchedule")} if tainted else set())
    wait_until(lambda: taints(node) == expected, what=f"the taints are {expected}", seconds=120)


def test_node_is_tainted_while_its_renewal_is_overdue(
    fleet: Fleet, signer: Signer, machines: Machines
) -> None:
    tenant, admin = fleet.first, fleet.management.admin
    workload = tenant.workload
    file = str(PACKAGING / "node-taints-rbac.yaml")
    workload.kubectl("apply", "--server-side", "-f", file)
    account = workload.client(SIGNER, SIGNER)
    wait_until(lambda: account.may("patch", "nodes"), what="the API server applies the role")
    node = machines.registered(tenant)
    claim = f"{csrs.ATTESTED_NODES.format(tenant.namespace)}/{node.name}.{tenant.name}"
    with signer.with_policies(of_cluster(tenant, renewals={"taintUnattested": True})):
        assert node.call().status == 0
        kubelet = client_of(node)
        kubelet.create(NODES, body_of(node))
        workload.admin.patch(f"{NODES}/{node.name}", {"spec": {"taints": [OTHER]}})
        admin.patch(claim, PAST)
        wait_for_taint(node, tainted=True)
        with pytest.raises(ApiError, match=r"^403 .*is not allowed to modify taints"):
            kubelet.patch(f"{NODES}/{node.name}", {"spec": {"taints": []}})
        assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
        wait_for_taint(node, tainted=False)
    signer.wait_until_ready()
    workload.admin.delete(f"{NODES}/{node.name}")
    workload.kubectl("delete", "-f", file)
