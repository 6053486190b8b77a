"""Claims on real parts: operators change them with kubectl, and Machines are deleted and replaced.

The tests read the commands from docs/operate/endorsement-keys.md and run them.
"""

import shlex

import pytest
import yaml

from tests.harness.documentation import blocks
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import CORE, Machine
from tests.harness.process import wait_until
from tests.integration import csrs
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

FINALIZER = "test.example/node-is-drained"


def ban(fleet: Fleet, key: str) -> None:
    """Run the documented command, with the key's name in place of its placeholder."""
    [command] = [block.script for block in blocks() if '"banned"' in block.script]
    program, *arguments = shlex.split(command.replace("\\\n", "").replace("$OLD", key))
    assert program == "kubectl"
    fleet.management.kubectl(*arguments)


def key_of(node: Node, fleet: Fleet) -> str:
    """Return the name of the EndorsementKey that holds a node's claim."""
    name: str = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    return name


def machine_path(node: Node) -> str:
    return f"/apis/{CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"


def renew(node: Node) -> str:
    """Renew, and return the error."""
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    return call.complaint if call.status else ""


def test_a_banned_tpm_is_refused_in_every_cluster(machines: Machines, fleet: Fleet) -> None:
    """E3: both where it is a node, and where it has yet to join."""
    node = machines.registered(fleet.first)
    assert node.call().status == 0
    key = key_of(node, fleet)
    ban(fleet, key)
    assert "EndorsementKeyBanned" in renew(node)
    elsewhere = machines.power_on(fleet.second, tpm=node.tpm)
    machines.register(elsewhere)
    assert Script(elsewhere).refusal_by_claim() == "EndorsementKeyBanned"
    row = fleet.management.kubectl("get", "endorsementkey", key)
    assert "mainboard replaced" in row


def test_tpm_is_replaced_with_the_documented_steps(machines: Machines, fleet: Fleet) -> None:
    """The new TPM is refused until an operator has done both steps, the old one from step one on.

    A change that an operator writes takes effect when the signer has seen it.
    """
    node = machines.registered()
    assert node.call().status == 0
    old = key_of(node, fleet)
    repaired = machines.power_on(name=node.name)
    assert Script(repaired).refusal() == "EndorsementKeyMismatch"
    [(annotation, value)] = repaired.registration().items()
    fleet.management.kubectl(
        *("annotate", "machine", node.name, f"--namespace={node.tenant.namespace}"),
        *("--overwrite", f"{annotation}={value}"),
    )
    wait_until(
        lambda: Script(repaired).refusal() == "NodeNameInUse", what="the signer has seen the record"
    )
    assert "EndorsementKeyMismatch" in renew(node)
    assert key_of(node, fleet) == old
    ban(fleet, old)
    wait_until(lambda: repaired.call().status == 0, what="the new TPM has joined", poll=1)
    assert key_of(repaired, fleet) != old
    assert Script(node).refusal() == "EndorsementKeyMismatch"


def test_new_machine_takes_over_the_name_of_a_deleted_one(machines: Machines, fleet: Fleet) -> None:
    """K2: the claim of a Machine that is gone is not live, and another Machine takes it over."""
    node = machines.registered()
    assert node.call().status == 0
    successor = machines.power_on(name=node.name)
    successor.provider_id += "/made-again"
    script = Script(successor)
    script.waiting_for("MachineNotFound")
    machines.forget(node)
    machines.register(successor, Machine(node.name, provider_id=successor.provider_id))
    assert script.attest() == {"Approved": "Attested"}
    claimed = csrs.claim(successor, fleet.management.admin)
    assert claimed["providerID"] == successor.provider_id
    assert claimed["endorsementKey"] in next(iter(successor.registration().values()))


def test_tpm_of_a_machine_that_is_being_deleted_waits(machines: Machines, fleet: Fleet) -> None:
    """K1, E3: until the Machine is gone, its node may still run."""
    node = machines.registered()
    assert node.call().status == 0
    fleet.management.admin.patch(machine_path(node), {"metadata": {"finalizers": [FINALIZER]}})
    machines.forget(node)
    assert renew(node) == "", "a node that is drained keeps its certificate"
    successor = machines.power_on(tpm=node.tpm)
    machines.register(successor)
    script = Script(successor)
    script.waiting_for("EndorsementKeyHolderDeleting")
    fleet.management.admin.patch(machine_path(node), {"metadata": {"finalizers": []}})
    assert script.attest() == {"Approved": "Attested"}
    held = csrs.held(successor, fleet.management.admin)
    assert (held["nodeName"], held["providerID"]) == (successor.name, successor.provider_id)


@pytest.mark.parametrize("by", ["providerID", "machineName", "nodeName"])
def test_a_key_registered_by_an_operator_joins(machines: Machines, fleet: Fleet, by: str) -> None:
    """E2: with the manifest that the node prints, and kubectl. Any one of the names is enough."""
    node = machines.known()
    call = node.call(
        *("endorsement-key", "--kubeconfig", str(node.kubeconfig())),
        *("--manifest", "--cluster", f"{node.tenant.namespace}/{node.tenant.name}"),
    )
    assert call.status == 0, call.complaint
    manifest = yaml.safe_load(call.output)
    [registered] = manifest["spec"]["registeredFor"]
    registered["machineName"] = node.name
    for other in {"providerID", "machineName", "nodeName"} - {by}:
        del registered[other]
    script = Script(node)
    script.waiting_for("EndorsementKeyNotRegistered")
    fleet.management.kubectl("create", "--filename=-", stdin=yaml.safe_dump(manifest))
    assert script.attest() == {"Approved": "Attested"}
    assert csrs.held(node, fleet.management.admin)["basis"] == "Registered"
