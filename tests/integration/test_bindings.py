"""R0: the effect of kubeadm's auto-approving bindings where a policy does not remove them."""

from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import WorkloadCluster
from tests.integration.scripted_node import Script

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NAMES = ("kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation")


def existing_bindings(workload: WorkloadCluster) -> set[str]:
    """Return which of the bindings exist."""
    return {each["metadata"]["name"] for each in workload.admin.list(BINDINGS)} & set(NAMES)


@pytest.fixture(scope="module", autouse=True)
def tolerant(signer: Signer, fleet: Fleet) -> Iterator[Signer]:
    """Only raise an alarm in one cluster, and issue nothing in the other."""
    specs = (
        of_cluster(tenant, autoApproveBindings=choice)
        for tenant, choice in zip(fleet.tenants, ("Alarm", "Wait"), strict=True)
    )
    with signer.with_policies(*specs) as running:
        for tenant in fleet.tenants:
            tenant.workload.allow_automatic_approval()
        yield running
        for tenant in fleet.tenants:
            for name in existing_bindings(tenant.workload):
                tenant.workload.admin.delete(f"{BINDINGS}/{name}")


def alarms(signer: Signer, namespace: str) -> set[str]:
    """Return the bindings for which the signer raised an alarm."""
    return {
        line["detail"]
        for line in signer.lines
        if line.get("reason") == "AutoApproveBindingPresent"
        and line["event"] == "auto-approving binding found"
        and line["cluster"].startswith(f"{namespace}/")
    }


def test_alarm_does_not_stop_issuance(machines: Machines, fleet: Fleet, tolerant: Signer) -> None:
    tenant = fleet.first
    wait_until(lambda: alarms(tolerant, tenant.namespace) >= set(NAMES), what="the alarm")
    assert Script(machines.registered(tenant)).attest() == {"Approved": "Attested"}
    assert existing_bindings(tenant.workload) == set(NAMES)


def test_wait_issues_nothing_until_the_bindings_are_gone(
    machines: Machines, fleet: Fleet, tolerant: Signer
) -> None:
    tenant = fleet.second
    wait_until(lambda: alarms(tolerant, tenant.namespace) >= set(NAMES), what="the alarm")
    script = Script(machines.registered(tenant))
    script.waiting_for("AutoApproveBindingPresent")
    assert existing_bindings(tenant.workload) == set(NAMES)
    for name in NAMES:
        tenant.workload.admin.delete(f"{BINDINGS}/{name}")
    assert script.attest() == {"Approved": "Attested"}
    tenant.workload.allow_automatic_approval()


def test_binding_with_another_name_is_found(fleet: Fleet, tolerant: Signer) -> None:
    """The role decides. The names that kubeadm gives its bindings are only a convention."""
    tenant, name = fleet.first, "approve-all-nodes"
    role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    api = "rbac.authorization.k8s.io"
    tenant.workload.admin.create(
        BINDINGS,
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": "system:bootstrappers"}],
        },
    )
    wait_until(lambda: name in alarms(tolerant, tenant.namespace), what="the alarm")
    tenant.workload.admin.delete(f"{BINDINGS}/{name}")
