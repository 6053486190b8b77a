"""R0 and R1: the kind of a CSR that the signer decides."""

from dataclasses import replace

import pytest

from signer.model import Condition
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from signer.verify.requests.recognize import CsrKind, recognize_csr
from tests.builders.scenario import Scenario

APPROVED = {"Approved": Condition(type="Approved", reason="ByHand", message="")}


@pytest.mark.parametrize("kind", list(CsrKind))
def test_r1_our_signer_names_are_recognized(kind: CsrKind) -> None:
    """Each of the three kinds, also after an approval."""
    scenario = Scenario(kind=kind)
    csr = scenario.csr(b"", conditions=APPROVED)
    assert recognize_csr(csr, scenario.cluster, scenario.policy) is kind


def test_r0_mode_alarm_recognizes_requests_despite_an_auto_approve_binding() -> None:
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"}))
    policy = replace(scenario.policy, auto_approve_bindings=AutoApproveBindings.ALARM)
    assert recognize_csr(scenario.csr(b""), scenario.cluster, policy) is CsrKind.CLIENT


def test_r0_nodes_can_attest_while_bindings_stay_for_them() -> None:
    scenario = Scenario()
    bindings = frozenset({"kubeadm:node-autoapprove-bootstrap"})
    scenario.change_cluster(auto_approve_bindings=bindings, keeps_bindings=True)
    assert recognize_csr(scenario.csr(b""), scenario.cluster, scenario.policy) is CsrKind.CLIENT


def test_r0_bindings_do_not_stop_requests_while_approvals_are_disabled() -> None:
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"}))
    policy = replace(scenario.policy, approval=Approval.DISABLED)
    assert recognize_csr(scenario.csr(b""), scenario.cluster, policy) is CsrKind.CLIENT


SERVING_ONLY = Policy(name="test", mode=PolicyMode.SERVING_ONLY)


def test_r0_serving_only_ignores_bindings_that_give_nodes_their_client_certificates() -> None:
    scenario = Scenario(kind=CsrKind.BUILTIN_SERVING)
    scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"}))
    assert recognize_csr(scenario.csr(b""), scenario.cluster, SERVING_ONLY) is scenario.kind
