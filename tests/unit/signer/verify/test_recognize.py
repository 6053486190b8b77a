"""R0 and R1: is it ours, and of which kind."""

from dataclasses import replace

import pytest

from common.errors import AttestationError
from common.names import CLIENT_SIGNER
from signer.errors import (
    AlreadyDecided,
    AutoApproveBindingPresent,
    MultipleClientSigners,
    NotOptedIn,
    NotOurSigner,
)
from signer.model import Condition
from signer.policy import AutoApproveBindings, KubeletServingMode
from signer.verify.recognize import CsrKind, recognize_csr
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER
from tests.builders.scenario import Scenario

APPROVED = {"Approved": Condition(type="Approved", reason="ByHand", message="")}


@pytest.mark.parametrize("kind", list(CsrKind))
def test_r1_our_signer_names_are_recognised(kind: CsrKind) -> None:
    """Each of the three kinds, whether or not somebody has approved it."""
    scenario = Scenario(kind=kind)
    csr = scenario.csr(b"", conditions=APPROVED)
    assert recognize_csr(csr, scenario.cluster, scenario.policy) is kind


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"signer_name": "kubernetes.io/kube-apiserver-client-kubelet"}, NotOurSigner),
        ({"signer_name": CLIENT_SIGNER + "/x"}, NotOurSigner),
        ({"signer_name": INSECURE_CLIENT_SIGNER}, NotOurSigner),
        ({"certificate": b"pem"}, AlreadyDecided),
        (
            {"conditions": {"Denied": Condition(type="Denied", reason="", message="")}},
            AlreadyDecided,
        ),
        (
            {"conditions": {"Failed": Condition(type="Failed", reason="", message="")}},
            AlreadyDecided,
        ),
    ],
)
def test_r1_others_and_settled_ones_are_ignored(
    changes: dict[str, object], error: type[AttestationError]
) -> None:
    """Another signer's, or one that has its verdict."""
    scenario = Scenario()
    csr = scenario.csr(b"", **changes)
    with pytest.raises(error):
        recognize_csr(csr, scenario.cluster, scenario.policy)


def test_r1_builtin_serving_is_left_to_others_by_policy() -> None:
    """A cluster may have another approver for it."""
    scenario = Scenario(kind=CsrKind.BUILTIN_SERVING)
    policy = replace(scenario.policy, builtin_serving=KubeletServingMode.IGNORE)
    with pytest.raises(NotOurSigner):
        recognize_csr(scenario.csr(b""), scenario.cluster, policy)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"client_signers": frozenset[str]()}, NotOptedIn),
        ({"client_signers": frozenset({INSECURE_CLIENT_SIGNER})}, NotOptedIn),
        (
            {"client_signers": frozenset({CLIENT_SIGNER, INSECURE_CLIENT_SIGNER})},
            MultipleClientSigners,
        ),
        (
            {"auto_approve_bindings": frozenset({"kubeadm:node-autoapprove-bootstrap"})},
            AutoApproveBindingPresent,
        ),
    ],
)
def test_r0_the_cluster_has_to_be_in_order(
    changes: dict[str, object], error: type[AttestationError]
) -> None:
    """Opted in, to this signer alone, and without a way around it."""
    scenario = Scenario()
    scenario.change_cluster(**changes)
    with pytest.raises(error):
        recognize_csr(scenario.csr(b""), scenario.cluster, scenario.policy)


@pytest.mark.parametrize("mode", list(AutoApproveBindings))
def test_r0_only_mode_alarm_goes_on_beside_a_binding(mode: AutoApproveBindings) -> None:
    """Where bindings are removed, approvals wait until they are gone."""
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-bootstrap"}))
    policy = replace(scenario.policy, auto_approve_bindings=mode)
    if mode is AutoApproveBindings.ALARM:
        assert recognize_csr(scenario.csr(b""), scenario.cluster, policy) is CsrKind.CLIENT
    else:
        with pytest.raises(AutoApproveBindingPresent):
            recognize_csr(scenario.csr(b""), scenario.cluster, policy)
