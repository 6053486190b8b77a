"""Which rules and bindings count as rights that lead around the attestation."""

from typing import Any

import pytest

from common.names import CLIENT_SIGNER, SERVING_SIGNER
from signer.inventory.caches import AUTO_APPROVE_ROLES
from signer.operator_cli.checks.rbac import SIGNER_GROUP, find_administrators, find_holders

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
AUTOMATIC: dict[str, Any] = {
    "verbs": ["create"],
    "apiGroups": ["certificates.k8s.io"],
    "resources": ["certificatesigningrequests/nodeclient"],
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
        SIGNERS | {"resourceNames": ["kubernetes.io/*"]},
        SIGNERS | {"resourceNames": ["kubernetes.io/kube-apiserver-client-kubelet"]},
        SIGNERS | {"resourceNames": ["kubernetes.io/kube-apiserver-client"]},
        AUTOMATIC,
        AUTOMATIC | {"resources": ["certificatesigningrequests/selfnodeclient"]},
        AUTOMATIC | {"verbs": ["*"]},
    ],
    ids=str,
)
def test_right_is_found(rule: dict[str, Any]) -> None:
    [holder] = find_holders([role(rule)], [binding()])
    assert (holder.subject, holder.role) == ("User mallory", "r")


def test_right_to_sign_for_every_signer_is_found_twice() -> None:
    """For the attested signers, and for those of Kubernetes."""
    holders = find_holders([role(SIGNERS | {"resourceNames": []})], [binding()])
    assert len({holder.right for holder in holders}) == 2


@pytest.mark.parametrize(
    "rule",
    [
        NODES | {"verbs": ["impersonate:serviceaccount"]},
        NODES | {"apiGroups": [""]},
        NODES | {"resources": ["pods"]},
        USERS | {"resourceNames": ["alice"]},
        USERS | {"resources": ["serviceaccounts"]},
        SIGNERS | {"resourceNames": ["kubernetes.io/kubelet-serving"]},
        AUTOMATIC | {"resourceNames": [CLIENT_SIGNER]},
        AUTOMATIC | {"resources": ["certificatesigningrequests/selfnodeserver"]},
        AUTOMATIC | {"resources": ["certificatesigningrequests"]},
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


def test_controller_of_kubernetes_is_expected_in_its_namespace_only() -> None:
    account = ("ServiceAccount", "certificate-controller")
    assert not find_holders([role(SIGNERS)], [binding(*account, namespace="kube-system")])
    assert find_holders([role(SIGNERS)], [binding(*account, namespace="team-a")])


@pytest.mark.parametrize("name", sorted(AUTO_APPROVE_ROLES))
def test_binding_to_a_role_for_automatic_approval_is_left_to_its_own_check(name: str) -> None:
    bound = binding() | {"roleRef": {"name": name}}
    assert not find_holders([role(AUTOMATIC, name=name)], [bound])


def test_service_account_is_named_with_its_namespace() -> None:
    [holder] = find_holders([role(NODES)], [binding("ServiceAccount", "agent", namespace="ops")])
    assert holder.subject == "ServiceAccount ops/agent"


def test_administrators_are_listed_once_and_are_no_findings() -> None:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    roles, bindings = [role(everything, NODES)], [binding(), binding("Group", "system:masters")]
    assert not find_holders(roles, bindings)
    assert find_administrators(roles, bindings) == ["User mallory"]
    assert not find_administrators([role(NODES)], bindings)
