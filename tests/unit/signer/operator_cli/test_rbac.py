"""Which rules and bindings count as rights that lead around the attestation."""

from typing import Any

import pytest

from common.names import CLIENT_SIGNER, SERVING_SIGNER
from signer.operator_cli.rbac import SIGNER_GROUP, find_administrators, find_holders

NODES: dict[str, Any] = {
    "verbs": ["impersonate:arbitrary-node"],
    "apiGroups": ["authentication.k8s.io"],
    "resources": ["nodes"],
}
USERS: dict[str, Any] = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"]}
SIGNERS: dict[str, Any] = {
    "verbs": ["sign"],
    "apiGroups": ["certificates.k8s.io"],
    "resources": ["signers"],
    "resourceNames": [CLIENT_SIGNER],
}


def role(*rules: dict[str, Any], name: str = "r") -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(kind: str = "User", name: str = "mallory", **subject: str) -> dict[str, Any]:
    return {"roleRef": {"name": "r"}, "subjects": [{"kind": kind, "name": name, **subject}]}


@pytest.mark.parametrize(
    "rule",
    [
        NODES,
        NODES | {"verbs": ["impersonate:associated-node"], "resourceNames": ["node-1"]},
        NODES | {"verbs": ["*"]},
        NODES | {"apiGroups": ["*"], "resources": ["*"]},
        USERS,
        USERS | {"resources": ["groups"], "resourceNames": ["system:nodes"]},
        USERS | {"resourceNames": ["alice", "system:node:node-1"]},
        SIGNERS,
        SIGNERS | {"verbs": ["approve"], "resourceNames": [SERVING_SIGNER]},
        SIGNERS | {"resourceNames": ["cluster.x-k8s.io/*"]},
        SIGNERS | {"resourceNames": []},
    ],
    ids=str,
)
def test_right_is_found(rule: dict[str, Any]) -> None:
    [holder] = find_holders([role(rule)], [binding()])
    assert (holder.subject, holder.role) == ("User mallory", "r")


@pytest.mark.parametrize(
    "rule",
    [
        NODES | {"verbs": ["impersonate:serviceaccount"]},
        NODES | {"apiGroups": [""]},
        NODES | {"resources": ["pods"]},
        USERS | {"resourceNames": ["alice"]},
        USERS | {"resources": ["serviceaccounts"]},
        SIGNERS | {"resourceNames": ["kubernetes.io/*", "kubernetes.io/kubelet-serving"]},
        SIGNERS | {"resourceNames": ["cluster.x-k8s.io/another"]},
        SIGNERS | {"verbs": ["get"]},
    ],
    ids=str,
)
def test_other_rule_is_not_a_finding(rule: dict[str, Any]) -> None:
    assert not find_holders([role(rule)], [binding()])


@pytest.mark.parametrize(
    "subject",
    [("Group", "system:masters"), ("Group", SIGNER_GROUP)],
    ids=["administrators", "signer"],
)
def test_expected_holder_is_left_out(subject: tuple[str, str]) -> None:
    assert not find_holders([role(SIGNERS)], [binding(*subject)])
    assert find_holders([role(SIGNERS)], [binding("User", subject[1])])


def test_service_account_is_named_with_its_namespace() -> None:
    [holder] = find_holders([role(NODES)], [binding("ServiceAccount", "agent", namespace="ops")])
    assert holder.subject == "ServiceAccount ops/agent"


def test_administrators_are_listed_once_and_are_no_findings() -> None:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    roles, bindings = [role(everything, NODES)], [binding(), binding("Group", "system:masters")]
    assert not find_holders(roles, bindings)
    assert find_administrators(roles, bindings) == ["User mallory"]
    assert not find_administrators([role(NODES)], bindings)
