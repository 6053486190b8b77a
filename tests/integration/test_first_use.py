"""FirstUse on real parts: the signer trusts the first key of a Machine, only once.

Both clusters have the policy, so that the tests can compare them.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.harness import objects
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.scripted_node import Script

POLICY = {"endorsementKey": {"trust": "FirstUse"}}
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines"


@pytest.fixture(scope="module", autouse=True)
def believing(signer: Signer) -> Iterator[Signer]:
    """Trust the first key."""
    with signer.with_policies(POLICY) as running:
        yield running


def renew(node: Node) -> str:
    """Renew, and return the error."""
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    return call.complaint if call.status else ""


def test_first_tpm_joins_and_renews(machines: Machines, fleet: Fleet) -> None:
    node = machines.known()
    assert node.call().status == 0
    assert csrs.held(node, fleet.management.admin)["basis"] == "FirstUse"
    assert renew(node) == ""


def test_only_the_machines_own_token_is_accepted(machines: Machines, fleet: Fleet) -> None:
    """Where the Machine's bootstrap configuration owns a token, every other token is refused."""
    node = machines.power_on()
    workload = node.tenant.workload
    owned_token = workload.bootstrap_token()
    config = objects.kubeadm_config(node.name, token=owned_token)
    fleet.management.create_object(node.tenant.namespace, config)
    fleet.add_machine(node.tenant, Machine(node.name, bootstrap_config=node.name))
    Script(node).waiting_for("OperatorActionRequired")
    node.give_token(owned_token)
    assert node.call().status == 0


@pytest.fixture
def replica(fleet: Fleet, tmp_path: Path) -> Iterator[Signer]:
    """Run a second signer next to the first; both serve both clusters."""
    replica = Signer(fleet, tmp_path / "replica").share_with_no_other()
    with replica as running:
        running.wait_until_ready()
        wait_until(lambda: len(running.states()) >= len(fleet.tenants), what="it serves both")
        yield running


def race(scripts: list[Script]) -> list[dict[str, str]]:
    """Let all nodes file their answers at once, and return the outcome of each."""
    names = [csrs.new_name() for _ in scripts]
    # A TPM accepts only one connection at a time.
    answers = [script.answer(name) for script, name in zip(scripts, names, strict=True)]
    with ThreadPoolExecutor(len(scripts)) as pool:
        return list(pool.map(Script.file, scripts, names, answers))


@pytest.mark.usefixtures("replica")
def test_exactly_one_of_the_machines_with_one_tpm_joins(machines: Machines) -> None:
    """K1: twenty nodes race, five with one TPM, under two signers."""
    tpms = [machines.tpm() for _ in range(4)]
    nodes = [machines.known(tpm=tpm) for tpm in tpms for _ in range(5)]
    ended = race([Script(node) for node in nodes])
    for tpm in tpms:
        outcomes = [end for node, end in zip(nodes, ended, strict=True) if node.tpm is tpm]
        assert outcomes.count({"Approved": "Attested"}) == 1
        lost = [end for end in outcomes if "Approved" not in end]
        assert {end["Denied"] for end in lost} <= {
            "EndorsementKeyInUse",
            "EndorsementKeyInUseLocally",
        }


@pytest.mark.usefixtures("replica")
def test_exactly_one_of_the_tpms_for_one_machine_joins(machines: Machines) -> None:
    """K2: two TPMs race for each name, under two signers."""
    nodes = [machines.known() for _ in range(3)]
    rivals = [machines.power_on(name=node.name) for node in nodes]
    ended = race([Script(node) for node in (*nodes, *rivals)])
    for one, other in zip(ended[:3], ended[3:], strict=True):
        assert {"Approved": "Attested"} in (one, other)
        assert {"Denied": "NodeNameInUse"} in (one, other)
