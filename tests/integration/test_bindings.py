"""R0: the effect of kubeadm's auto-approving bindings where a policy does not remove them."""

from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING, SIGNER
from tests.integration.bindings import BINDINGS, NAMES, create_binding, existing_bindings
from tests.integration.scripted_node import Script


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


def shown(fleet: Fleet, outcome: str) -> bool:
    """Return whether an Event on the first Cluster has this text."""
    path = f"/api/v1/namespaces/{fleet.first.namespace}/events"
    return any(
        event["involvedObject"]["kind"] == "Cluster"
        and event["reason"] == "AutoApproveBindingPresent"
        and outcome in event["message"]
        for event in fleet.management.admin.list(path)
    )


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


def test_binding_with_another_name_is_found_and_shown(fleet: Fleet, tolerant: Signer) -> None:
    """The role decides. The names that kubeadm gives its bindings are only a convention."""
    tenant, name = fleet.first, "approve-all-nodes"
    create_binding(tenant.workload, name)
    try:
        wait_until(lambda: name in alarms(tolerant, tenant.namespace), what="the alarm")
        wait_until(lambda: shown(fleet, f"{name} (not deleted)"), what="the Event")
    finally:
        tenant.workload.admin.delete(f"{BINDINGS}/{name}")


def test_binding_with_another_name_is_deleted_with_the_right_to_do_so(
    fleet: Fleet, tolerant: Signer
) -> None:
    workload, file = fleet.first.workload, str(PACKAGING / "binding-removal-rbac.yaml")
    with tolerant.with_policies(of_cluster(fleet.first)):
        create_binding(workload, "first")
        wait_until(lambda: shown(fleet, "first (not deleted)"), what="the Event")
        workload.kubectl("apply", "--server-side", "-f", file)
        account = workload.client(SIGNER, SIGNER)
        bindings = {"resource": "clusterrolebindings", "group": "rbac.authorization.k8s.io"}
        wait_until(lambda: account.may("delete", **bindings), what="the role is applied")
        create_binding(workload, "second")
        wait_until(lambda: shown(fleet, "first (deleted)"), what="the Event")
        wait_until(lambda: shown(fleet, "second (deleted)"), what="the Event")
        names = {each["metadata"]["name"] for each in workload.admin.list(BINDINGS)}
        assert not names & {"first", "second", *NAMES}
        assert "system:node-proxier" in names, "other bindings stay"
    tolerant.wait_until_ready()
    workload.kubectl("delete", "-f", file)
    workload.allow_automatic_approval()
