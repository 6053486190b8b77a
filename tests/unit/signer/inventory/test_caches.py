"""What caches keep of the objects that they read."""

from typing import Any

import pytest

from signer.inventory.caches import read_binding

ROLES = "system:certificates.k8s.io:certificatesigningrequests:"


def binding(name: str, role: str) -> dict[str, Any]:
    """Make a ClusterRoleBinding."""
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "name": "system:bootstrappers"}],
    }


@pytest.mark.parametrize("role", ["nodeclient", "selfnodeclient"])
@pytest.mark.parametrize("name", ["kubeadm:node-autoapprove-bootstrap", "auto-approve-csrs", "x"])
def test_r0_auto_approving_binding_is_found_by_its_role_under_any_name(
    name: str, role: str
) -> None:
    """Under another name than kubeadm's it went unseen."""
    assert read_binding(binding(name, ROLES + role)) == name


@pytest.mark.parametrize(
    "role",
    ["", "system:node-bootstrapper", ROLES + "selfnodeserver", ROLES + "nodeclient2"],
)
def test_r0_binding_to_another_role_is_not_auto_approving(role: str) -> None:
    assert read_binding(binding("kubeadm:node-autoapprove-bootstrap", role)) is None


def test_r0_binding_without_role_is_not_auto_approving() -> None:
    assert read_binding({"metadata": {"name": "kubeadm:node-autoapprove-bootstrap"}}) is None
