"""R0 and R1: the kind of a CSR that the signer decides."""

from dataclasses import replace

import pytest

from signer.model import Condition
from signer.policy import AutoApproveBindings
from signer.verify.recognize import CsrKind, recognize_csr
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
