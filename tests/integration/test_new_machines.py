"""M7 on real parts: a policy that allows the first join of new Machines only."""

from collections.abc import Iterator

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.objects import CORE
from tests.harness.signer import Signer, of_cluster
from tests.integration.scripted_node import Script


@pytest.fixture(scope="module", autouse=True)
def only_new_machines(signer: Signer, fleet: Fleet) -> Iterator[None]:
    """Use the policy in the first cluster."""
    with signer.with_policies(of_cluster(fleet.first, firstJoin={"within": "2h"})):
        yield


def test_bootstrap_token_is_worth_nothing_for_a_machine_that_has_joined(
    machines: Machines, fleet: Fleet
) -> None:
    """The Machine's own TPM and token are not enough, until its Node and nodeRef are gone."""
    node = machines.registered()
    assert Script(node).attest() == {"Approved": "Attested"}
    admin = fleet.first.workload.admin
    spec = {"providerID": node.provider_id}
    admin.create("/api/v1/nodes", {"metadata": {"name": node.name}, "spec": spec})
    script = Script(node)
    assert "a Node of that name exists" in script.waiting_for("MachineNotNew")
    path = f"/apis/{CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    status = {"status": {"nodeRef": {"name": node.name}}}
    fleet.management.admin.patch(f"{path}/status", status)
    # The signer sees Machines in order: when it knows this one, it also knows the nodeRef.
    Script(machines.registered()).challenge()
    admin.delete(f"/api/v1/nodes/{node.name}")
    script = Script(node)
    assert "the Machine has a nodeRef" in script.waiting_for("MachineNotNew")
    fleet.management.admin.patch(f"{path}/status", {"status": {"nodeRef": None}})
    assert script.attest() == {"Approved": "Attested"}
