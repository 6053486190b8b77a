"""What the signer does after manual approvals, with unsafe bindings, and for deleted Machines."""

from collections.abc import Callable
from typing import Any

import pytest

from common import evidence
from common.names import PENDING_REASON_ANNOTATION
from common.requests.csr import encode_request
from tests.harness.client import ApiError
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.relays import PATIENCE
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

BINDING = "kubeadm:node-autoapprove-bootstrap"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def filed(script: Script, name: str, answer: evidence.Answer) -> str:
    """File an answer, and do not wait for a verdict."""
    return csrs.file(
        script.client,
        encode_request(script.pkcs10, evidence.encode_attestation_data(answer)),
        name=name,
    )


def when_resting(signer: Signer, act: Callable[[], None]) -> None:
    """Act while the signer rests, so that it never sees a half-finished change."""
    signer.stop()
    try:
        act()
    finally:
        signer.start()


def test_answer_of_a_deleted_machine_waits_with_an_event(
    machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    node = machines.registered()
    script, name = Script(node), csrs.new_name()
    answer = script.answer(name)
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{node.tenant.namespace}/machines"
    body: dict[str, Any] = fleet.management.admin.get(f"{path}/{node.name}")

    def act() -> None:
        fleet.management.admin.delete(f"{path}/{node.name}")
        filed(script, name, answer)

    when_resting(signer, act)
    message = csrs.annotated(node.tenant.workload.admin, name, PENDING_REASON_ANNOTATION)
    assert message.startswith("MachineNotFound: ")
    admin = node.tenant.workload.admin

    def events() -> list[str]:
        selector = f"involvedObject.name={name}"
        events_of_csr = admin.list("/api/v1/namespaces/default/events", fieldSelector=selector)
        return [event["reason"] for event in events_of_csr]

    # While another thread reads the challenge keys for the first time, a request is retried.
    wait_until(lambda: bool(set(events()) - {"ChallengeKeyUnavailable"}), what="the Event")
    assert set(events()) - {"ChallengeKeyUnavailable"} == {"MachineNotFound"}
    body["metadata"] = {
        key: body["metadata"][key]
        for key in ("name", "namespace", "annotations", "labels")
        if key in body["metadata"]
    }
    fleet.management.admin.create(path, body)
    fleet.management.admin.patch(f"{path}/{node.name}/status", {"status": body["status"]})
    assert csrs.decided(admin, name) == {"Approved": "Attested"}


def test_auto_approving_binding_is_removed_and_reported(
    machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    """R0: while the binding exists, a bootstrap token alone gets a certificate."""
    workload = fleet.first.workload
    workload.allow_automatic_approval()

    def gone() -> bool:
        try:
            workload.admin.get(f"{BINDINGS}/{BINDING}")
        except ApiError as error:
            return error.code == 404
        return False

    wait_until(gone, what="the binding is removed")
    alarms = [line for line in signer.lines if line["event"] == "auto-approving binding found"]
    assert {line["detail"] for line in alarms} >= {BINDING}
    assert all(line["alarm"] for line in alarms)
    assert machines.registered().call().status == 0


def test_a_cluster_that_names_two_signers_waits(
    machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    """R0: a second client signer would bypass the first."""
    tenant = fleet.first
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}"
    key = "attestation.cluster.x-k8s.io/client-signer"
    own_signer = fleet.management.admin.get(path)["metadata"]["annotations"][key]
    both = f"{own_signer},cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
    node = machines.registered(settings=PATIENCE)

    def act() -> None:
        fleet.management.admin.patch(path, {"metadata": {"annotations": {key: both}}})

    try:
        when_resting(signer, act)
        call = node.start()
        wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
        [offer] = csrs.offers(node)
        name = offer["metadata"]["name"]
        message = csrs.annotated(tenant.workload.admin, name, PENDING_REASON_ANNOTATION)
        assert message.startswith("MultipleClientSigners: ")
    finally:
        fleet.management.admin.patch(path, {"metadata": {"annotations": {key: own_signer}}})
    assert finished(call).status == 0
    [waited] = [line for line in signer.verdicts(name) if line["outcome"] == "waiting"]
    assert waited["alarm"]


def test_cluster_that_opted_out_is_ignored(
    machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    tenant = fleet.second

    def times_left() -> int:
        left = ("cluster closed", f"{tenant.namespace}/{tenant.name}")
        return sum((line["event"], line.get("cluster")) == left for line in signer.lines)

    # A signer that has just started may not have seen the cluster yet.
    assert machines.registered(tenant).call().status == 0
    earlier = times_left()
    path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}"
    key = "attestation.cluster.x-k8s.io/client-signer"
    own_signer = fleet.management.admin.get(path)["metadata"]["annotations"][key]
    node = machines.registered(tenant, settings=PATIENCE)
    fleet.management.admin.patch(path, {"metadata": {"annotations": {key: None}}})
    try:
        wait_until(lambda: times_left() > earlier, what="the signer leaves the cluster")
        call = node.start()
        wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
        # The other cluster's node shows that the signer works.
        assert machines.registered(fleet.first).call().status == 0
        [offer] = csrs.offers(node)
        current = tenant.workload.admin.get(f"{csrs.CSRS}/{offer['metadata']['name']}")
        assert "annotations" not in current["metadata"]
        assert not current.get("status")
    finally:
        fleet.management.admin.patch(path, {"metadata": {"annotations": {key: own_signer}}})
    assert finished(call).status == 0
