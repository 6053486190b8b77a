"""R0 and R1: the kind of a CSR that the signer decides."""

import pytest

from signer.kinds.csr import Condition
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


BINDINGS = frozenset({"kubeadm:node-autoapprove-bootstrap"})
SERVING_ONLY = Policy(name="test", mode=PolicyMode.SERVING_ONLY)
ALARM = Policy(name="test", auto_approve_bindings=AutoApproveBindings.ALARM)
DISABLED = Policy(name="test", approval=Approval.DISABLED)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (ALARM, CsrKind.CLIENT),
        (DISABLED, CsrKind.CLIENT),
        # Such bindings give nodes their client certificates.
        (SERVING_ONLY, CsrKind.BUILTIN_SERVING),
    ],
    ids=["mode Alarm", "approvals are disabled", "serving only"],
)
def test_r0_policy_may_recognize_requests_despite_an_auto_approve_binding(
    policy: Policy, kind: CsrKind
) -> None:
    scenario = Scenario(kind=kind)
    scenario.change_cluster(auto_approve_bindings=BINDINGS)
    assert recognize_csr(scenario.csr(b""), scenario.cluster, policy) is kind


def test_r0_nodes_can_attest_while_bindings_stay_for_them() -> None:
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=BINDINGS, keeps_bindings=True)
    assert recognize_csr(scenario.csr(b""), scenario.cluster, scenario.policy) is CsrKind.CLIENT
