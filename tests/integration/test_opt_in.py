"""A Cluster opts in while its nodes have certificates that nothing has attested."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.process import wait_until
from tests.harness.signer import Signer, opt_in
from tests.integration.bindings import BINDINGS, NAMES, existing_bindings
from tests.integration.kubelet_nodes import NODES, body_of
from tests.integration.scripted_node import Script

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
SEEN = "attestation.cluster.x-k8s.io/opt-in-seen"
ROUNDS = 180
"""Seconds in which several rounds of maintenance end, also on a busy machine."""


def cluster_path(tenant: WorkloadTenant) -> str:
    namespace = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}"
    return f"{namespace}/clusters/{tenant.name}"


def opt_out(fleet: Fleet, tenant: WorkloadTenant) -> None:
    change = {"metadata": {"annotations": {"attestation.cluster.x-k8s.io/client-signer": None}}}
    fleet.management.admin.patch(cluster_path(tenant), change)


def opt_in_seen(fleet: Fleet, tenant: WorkloadTenant) -> str:
    """Return what the signer wrote about the opt-in, empty for nothing."""
    holder = f"{tenant.namespace}/{tenant.name}"
    for lease in fleet.management.admin.list(LEASES):
        labels = lease["metadata"].get("labels", {})
        if lease["spec"].get("holderIdentity") == holder and SEEN in labels:
            return str(labels[SEEN])
    return ""


def condition(fleet: Fleet, tenant: WorkloadTenant) -> dict[str, Any]:
    status = fleet.management.admin.get(cluster_path(tenant))["status"]
    found = (c for c in status["conditions"] if c["type"] == "AutoApproveBindingsRemoved")
    return next(found, {})


@pytest.fixture
def live(fleet: Fleet, signer: Signer) -> Iterator[WorkloadTenant]:
    """Opt a Cluster out and create kubeadm's bindings; a new signer has no record of its opt-in.

    Nodes of other tests would be nodes from before the opt-in.
    """
    tenant, admin = fleet.second, fleet.second.workload.admin
    opt_out(fleet, tenant)
    for node in admin.list(NODES):
        admin.delete(f"{NODES}/{node['metadata']['name']}")
    with signer.with_policies({}):
        wait_until(
            lambda: opt_in_seen(fleet, tenant) == "", what="the opt-in is forgotten", seconds=ROUNDS
        )
        tenant.workload.allow_automatic_approval()
        yield tenant
        for name in existing_bindings(tenant.workload):
            tenant.workload.admin.delete(f"{BINDINGS}/{name}")
        opt_in(fleet, tenant)
    signer.wait_until_ready()


def test_bindings_stay_until_the_nodes_of_a_live_cluster_have_attested(
    machines: Machines, fleet: Fleet, signer: Signer, live: WorkloadTenant
) -> None:
    worker, gone, intruder = (machines.registered(live) for _ in range(3))
    admin = live.workload.admin
    for node in (worker, gone):
        admin.create(NODES, body_of(node))
    admin.create(NODES, body_of(machines.power_on(live), {CONTROL_PLANE: ""}))
    opt_in(fleet, live)

    def stays_for(*names: str) -> bool:
        found = condition(fleet, live)
        expected = f"deleted: {', '.join(sorted(names))}. Next, on each of them: kubelet-auth"
        return found.get("status") == "False" and expected in found["message"]

    wait_until(lambda: stays_for(worker.name, gone.name), what="the condition", seconds=ROUNDS)
    seen = opt_in_seen(fleet, live)
    # Creation times have seconds.
    wait_until(lambda: time.time() > int(seen) + 1, what="a later second")
    admin.create(NODES, body_of(intruder))

    signer.stop()
    signer.start()
    assert Script(worker).attest() == {"Approved": "Attested"}
    wait_until(lambda: stays_for(gone.name), what="one node is left", seconds=ROUNDS)
    assert opt_in_seen(fleet, live) == seen
    assert existing_bindings(live.workload) == set(NAMES)
    admin.delete(f"{NODES}/{gone.name}")
    wait_until(lambda: not existing_bindings(live.workload), what="the removal", seconds=ROUNDS)
    wait_until(lambda: condition(fleet, live)["status"] == "True", what="the condition's end")
    assert opt_in_seen(fleet, live) == "complete"
