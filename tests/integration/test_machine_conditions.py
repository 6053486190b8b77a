"""The condition KubeletAttested and Events show with kubectl why a node does not join."""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from common.names import PENDING_REASON_ANNOTATION
from signer.inventory.cluster_api.machine_status import MachineCondition, MachineStatusClient
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import parse_kubeconfig
from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node, finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.machine_events import events
from tests.integration.operator_calls import Operator, key_of
from tests.integration.scripted_node import Script

CLUSTER_API = "/apis/cluster.x-k8s.io"


def machine_of(fleet: Fleet, node: Node) -> Object:
    path = f"{CLUSTER_API}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    return fleet.management.admin.get(path)


def conditions(machine: Object) -> Mapping[str, tuple[str, str]]:
    """Return status and reason of each condition of a Machine."""
    return {c["type"]: (c["status"], c["reason"]) for c in machine["status"]["conditions"]}


def wait_for(fleet: Fleet, node: Node, status: str, reason: str) -> None:
    wait_until(
        lambda: conditions(machine_of(fleet, node)).get("KubeletAttested") == (status, reason),
        what=f"the Machine has KubeletAttested={status} {reason}",
    )


@pytest.mark.usefixtures("signer")
def test_machine_shows_why_its_node_waits_and_that_it_attested(
    fleet: Fleet, machines: Machines
) -> None:
    node = machines.known()
    others = conditions(machine_of(fleet, node))
    script = Script(node)
    script.waiting_for("EndorsementKeyNotRegistered")
    wait_for(fleet, node, "False", "EndorsementKeyNotRegistered")
    described = node.tenant.workload.kubectl("describe", "csr", script.offer)
    assert "EndorsementKeyNotRegistered" in described.partition("Events:")[2]
    path = f"{CLUSTER_API}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    fleet.management.admin.patch(path, {"metadata": {"annotations": node.registration()}})
    script.challenge()
    offer = node.tenant.workload.admin.get(f"{csrs.CSRS}/{script.offer}")
    assert PENDING_REASON_ANNOTATION not in offer["metadata"]["annotations"]
    name = csrs.new_name()
    assert script.file(name, script.answer(name)) == {"Approved": "Attested"}
    wait_for(fleet, node, "True", "Attested")
    assert conditions(machine_of(fleet, node)).items() >= others.items()
    wait_until(
        lambda: (
            events(fleet, node)
            == {("Warning", "EndorsementKeyNotRegistered"), ("Normal", "Attested")}
        ),
        what="the Events",
    )


@pytest.mark.usefixtures("signer")
def test_ban_ends_the_condition_and_the_next_certificate_restores_it(
    fleet: Fleet, machines: Machines
) -> None:
    node = machines.registered()
    assert node.call().status == 0
    wait_for(fleet, node, "True", "Attested")
    path = f"{csrs.ENDORSEMENT_KEYS}/{key_of(node)}"
    fleet.management.admin.patch(path, {"spec": {"banned": {"reason": "stolen"}}})
    wait_for(fleet, node, "False", "EndorsementKeyBanned")
    operator = Operator(fleet, fleet.management.admin_config)
    assert operator.call("ban", key_of(node), "--lift", "--yes").status == 0
    renewal = ("renew", "--kubeconfig", str(node.kubeconfig()))
    wait_until(lambda: node.call(*renewal).status == 0, what="the node renews its certificate")
    wait_for(fleet, node, "True", "Attested")


@pytest.mark.usefixtures("signer")
def test_stranger_does_not_change_a_machine_that_has_attested(
    fleet: Fleet, machines: Machines
) -> None:
    """Its offer names the provider ID of the Machine, and comes from another TPM."""
    node = machines.registered()
    assert Script(node).attest() == {"Approved": "Attested"}
    wait_for(fleet, node, "True", "Attested")
    stranger = Script(machines.power_on(name=node.name))
    assert stranger.refusal() == "EndorsementKeyMismatch"
    described = node.tenant.workload.kubectl("describe", "csr", stranger.offer)
    assert "EndorsementKeyMismatch" in described.partition("Events:")[2]
    # The reports of a later node are written after those of the stranger.
    later = machines.known()
    Script(later).waiting_for("EndorsementKeyNotRegistered")
    wait_for(fleet, later, "False", "EndorsementKeyNotRegistered")
    assert conditions(machine_of(fleet, node))["KubeletAttested"] == ("True", "Attested")


@pytest.mark.parametrize("killed", [False, True], ids=["SIGTERM", "SIGKILL"])
def test_end_of_the_signer_just_after_certificates_loses_no_condition(
    fleet: Fleet,
    signer: Signer,
    machines: Machines,
    tmp_path: Path,
    killed: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """Two of 42 Machines never became ready. After a SIGKILL, the next signer reports them."""
    nodes = [machines.registered() for _ in range(6)]
    signer.stop()
    try:
        with Signer(fleet, tmp_path / "first") as first:
            first.wait_until_ready()
            calls = [node.start() for node in nodes]
            assert [finished(call).status for call in calls] == [0] * len(nodes)
            if killed:
                first.kill()
                first.start()
        for node in nodes if not killed else ():
            assert conditions(machine_of(fleet, node))["KubeletAttested"] == ("True", "Attested")
    finally:
        signer.start()
    for node in nodes:
        wait_for(fleet, node, "True", "Attested")


def test_condition_is_written_once_next_to_the_status_of_others(
    fleet: Fleet, machines: Machines
) -> None:
    """The CRDs of the harness have no conversion: v1beta1 has a unit test."""
    node = machines.known()
    before = machine_of(fleet, node)["status"]
    connection = parse_kubeconfig(fleet.management.signer_kubeconfig().encode())
    api = ApiClient("management", connection, user_agent="test")
    client = MachineStatusClient(api)
    uid = machine_of(fleet, node)["metadata"]["uid"]
    waits = MachineCondition(
        namespace=node.tenant.namespace,
        name=node.name,
        uid=uid,
        attested=False,
        reason="BootstrapNotReady",
        message="the bootstrap data is not ready",
    )
    with closing(api):
        for _ in range(2):
            client.write(waits, datetime(2026, 11, 22, 12, tzinfo=UTC))
    status = machine_of(fleet, node)["status"]
    [condition] = [c for c in status["conditions"] if c["type"] == "KubeletAttested"]
    generation = machine_of(fleet, node)["metadata"]["generation"]
    assert condition == {
        "type": "KubeletAttested",
        "status": "False",
        "reason": "BootstrapNotReady",
        "message": "the bootstrap data is not ready",
        "lastTransitionTime": "2026-11-22T12:00:00Z",
        "observedGeneration": generation,
    }
    assert before["addresses"] == status["addresses"]
    assert [c for c in status["conditions"] if c != condition] == before["conditions"]
