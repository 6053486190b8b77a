"""R2, R3 and M5: usages, requester, and its own name."""

from dataclasses import replace

import pytest

from common.errors import UnsupportedVersion
from signer.errors import RequesterNameMismatch, RequesterNotAllowed, UsagesNotAllowed
from signer.verify.recognize import CsrKind
from signer.verify.request import (
    BootstrapRequester,
    NodeRequester,
    verify_requester,
    verify_requester_name,
)
from tests.builders.scenario import Scenario

NODE_GROUPS = frozenset({"system:nodes", "system:authenticated"})
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


@pytest.mark.parametrize(
    ("kind", "usages"),
    [
        (CsrKind.CLIENT, ()),
        (CsrKind.CLIENT, ("client auth",)),
        (CsrKind.CLIENT, ("digital signature",)),
        (CsrKind.CLIENT, SERVING),
        (CsrKind.CLIENT, (*CLIENT, "server auth")),
        (CsrKind.CLIENT, (*CLIENT, "cert sign")),
        (CsrKind.CLIENT, (*CLIENT, "any")),
        (CsrKind.CLIENT, (*CLIENT, "client auth")),
        (CsrKind.CLIENT, ("signing", "client auth")),
        (CsrKind.SERVING, CLIENT),
        (CsrKind.SERVING, (*SERVING, "client auth")),
        (CsrKind.BUILTIN_SERVING, CLIENT),
        (CsrKind.BUILTIN_SERVING, ("server auth",)),
    ],
)
def test_r2_other_usages_are_denied(kind: CsrKind, usages: tuple[str, ...]) -> None:
    """Missing, foreign, additional or repeated ones."""
    scenario = Scenario(kind=kind)
    scenario.as_node()
    with pytest.raises(UsagesNotAllowed):
        verify_requester(scenario.csr(b"", usages=usages), kind, scenario.policy)


def test_r3_a_bootstrapper_of_a_configured_group_may_join() -> None:
    """Groups come from the policy."""
    scenario = Scenario()
    policy = replace(scenario.policy, bootstrap_groups=frozenset({"joiners"}))
    csr = scenario.csr(b"", username="system:bootstrap:abcdef", groups=frozenset({"joiners"}))
    assert verify_requester(csr, CsrKind.CLIENT, policy) == BootstrapRequester(
        username="system:bootstrap:abcdef"
    )


@pytest.mark.parametrize(
    ("kind", "username", "groups"),
    [
        (CsrKind.CLIENT, "alice", frozenset({"system:authenticated"})),
        (CsrKind.CLIENT, "alice", frozenset[str]()),
        (CsrKind.CLIENT, "alice", frozenset({"system:masters"})),
        (CsrKind.CLIENT, "alice", NODE_GROUPS),
        (CsrKind.CLIENT, "system:node:n1", frozenset({"system:authenticated"})),
        (CsrKind.CLIENT, "system:node:n1", frozenset({"system:bootstrappers"})),
        (CsrKind.CLIENT, "system:node:", NODE_GROUPS),
        (CsrKind.CLIENT, "System:node:n1", NODE_GROUPS),
        (CsrKind.SERVING, "system:bootstrap:abcdef", frozenset({"system:bootstrappers"})),
        (CsrKind.BUILTIN_SERVING, "system:bootstrap:abcdef", frozenset({"system:bootstrappers"})),
    ],
)
def test_r3_others_are_denied(kind: CsrKind, username: str, groups: frozenset[str]) -> None:
    """Neither bootstrapper nor node; a bootstrapper where only nodes may ask."""
    scenario = Scenario(kind=kind)
    csr = scenario.csr(b"", username=username, groups=groups)
    with pytest.raises(RequesterNotAllowed):
        verify_requester(csr, kind, scenario.policy)


def test_p6_the_policys_minimum_version_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once there is a second version, a policy can retire the first one."""
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, minimum_version="v2")
    monkeypatch.setattr("signer.policy.policy.SUPPORTED_VERSIONS", ("v1", "v2"))
    for judge in (scenario.judge_offer, scenario.judge_answer):
        with pytest.raises(UnsupportedVersion):
            judge()
    assert scenario.policy.versions == ("v2",)


def test_m5_a_node_asks_for_itself() -> None:
    """Its own name passes, and a bootstrapper has none yet."""
    verify_requester_name(NodeRequester(node_name="n1"), "n1")
    verify_requester_name(BootstrapRequester(username="system:bootstrap:abcdef"), "n1")


@pytest.mark.parametrize("name", ["n2", "n1.", "N1", "n11", ""])
def test_m5_a_node_that_asks_for_another_name_is_denied(name: str) -> None:
    """Whatever it looks like."""
    with pytest.raises(RequesterNameMismatch):
        verify_requester_name(NodeRequester(node_name="n1"), name)


@pytest.mark.parametrize("kind", [CsrKind.CLIENT, CsrKind.SERVING])
def test_m5_holds_for_whole_exchanges(kind: CsrKind) -> None:
    """On the offer and on the answer, for client and serving certificates."""
    scenario = Scenario()
    if kind is CsrKind.SERVING:
        scenario.for_serving("192.0.2.11")
    scenario.as_node("node-2.example")
    with pytest.raises(RequesterNameMismatch):
        scenario.judge_offer()
    with pytest.raises(RequesterNameMismatch):
        scenario.judge_answer()
