"""R2, R3 and M5: usages, requester, and its own name."""

from dataclasses import replace

import pytest

from signer.verify.requests.recognize import CsrKind
from signer.verify.requests.request import (
    BootstrapRequester,
    NodeRequester,
    verify_requester,
    verify_requester_name,
)
from tests.builders.scenario import Scenario

CLIENT = ("client auth", "digital signature")
SERVING = ("digital signature", "server auth")


@pytest.mark.parametrize("kind", list(CsrKind))
@pytest.mark.parametrize("extra", [(), ("key encipherment",)])
def test_r2_usages_of_a_kubelet_are_taken(kind: CsrKind, extra: tuple[str, ...]) -> None:
    """With and without key encipherment, which kubelets ask for with RSA keys."""
    scenario = Scenario(kind=kind)
    scenario.as_node()
    usages = (CLIENT if kind is CsrKind.CLIENT else SERVING) + extra
    csr = scenario.csr(b"", usages=usages)
    assert verify_requester(csr, kind, scenario.policy) == NodeRequester(node_name="node-1.example")


def test_r3_a_bootstrapper_of_a_configured_group_may_join() -> None:
    """Groups come from the policy."""
    scenario = Scenario()
    policy = replace(scenario.policy, bootstrap_groups=frozenset({"joiners"}))
    csr = scenario.csr(b"", username="system:bootstrap:abcdef", groups=frozenset({"joiners"}))
    assert verify_requester(csr, CsrKind.CLIENT, policy) == BootstrapRequester(
        username="system:bootstrap:abcdef"
    )


def test_m5_a_node_asks_for_itself() -> None:
    """Its own name passes, and a bootstrapper has none yet."""
    verify_requester_name(NodeRequester(node_name="n1"), "n1")
    verify_requester_name(BootstrapRequester(username="system:bootstrap:abcdef"), "n1")
