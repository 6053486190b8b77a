"""A node joins with the endorsement key that the simulator of vCenter Server has for its VM."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.vcenter import VirtualMachine
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import EndorsementKey
from tests.harness.vcenter_simulator import PASSWORD, USERNAME, vcenter_simulator
from tests.integration import csrs
from tests.integration.scripted_node import Script

OURS, OTHERS = "/DC0/vm/team-a", "/DC0/vm/team-b"


@dataclass(frozen=True, slots=True)
class Vms:
    """Machines whose VMs the simulator has."""

    node: Node
    in_another_folder: Node


@pytest.fixture
def vms(signer: Signer, fleet: Fleet, machines: Machines, tmp_path: Path) -> Iterator[Vms]:
    """Use a policy that names the folder of the first VM."""
    known = Vms(make_machine(machines, fleet), make_machine(machines, fleet))
    described = [make_vm(known.node, OURS), make_vm(known.in_another_folder, OTHERS)]
    with vcenter_simulator(described) as simulator:
        credentials = tmp_path / "vsphere.json"
        account = {
            "server": simulator.server,
            "username": USERNAME,
            "password": PASSWORD,
            "caFile": str(simulator.ca_file),
        }
        credentials.write_text(json.dumps(account), encoding="utf-8")
        platform = {"type": "vsphere", "credentialsFile": str(credentials), "locations": [OURS]}
        policy = of_cluster(fleet.first, endorsementKey={"platform": platform})
        with signer.with_policies(policy):
            yield known


def make_machine(machines: Machines, fleet: Fleet) -> Node:
    """Make a machine without a registered key."""
    node = machines.power_on()
    node.provider_id = f"vsphere://{uuid.uuid4()}"
    fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


def make_vm(node: Node, folder: str) -> VirtualMachine:
    certificate = node.tpm.certificate(EndorsementKey.RSA_2048)
    return VirtualMachine(node.provider_id.removeprefix("vsphere://"), folder, [certificate])


def test_only_the_vm_in_the_folder_of_the_policy_joins(vms: Vms, fleet: Fleet) -> None:
    Script(vms.in_another_folder).waiting_for("PlatformLocationNotAllowed")
    assert vms.node.call().status == 0
    assert csrs.held(vms.node, fleet.management.admin)["basis"] == "Registered"
