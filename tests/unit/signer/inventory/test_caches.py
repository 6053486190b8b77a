"""What caches keep of the objects that they read."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.caches import read_binding, read_service
from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.machine_object import read_machine, read_pool
from tests.builders import kube_objects
from tests.builders.attested_nodes import attested_node
from tests.builders.kube_objects import HOME, PROVIDER_ID
from tests.fakes.caches import FakeCaches

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


OWNERS: dict[str, tuple[dict[str, Any], bool]] = {
    "its Machine": ({}, True),
    "another Machine on its hardware": ({"machine_name": "machine-0"}, False),
    "its Machine, on other hardware": ({"provider_id": "test://2"}, False),
    "a Machine of another Cluster": ({"cluster": replace(HOME, name="other")}, False),
    "any Machine on its hardware": ({"machine_name": ""}, True),
    "a member of a MachinePool": ({"machine_name": "", "provider_id": "test://pool"}, True),
    "a member, but it names a Machine": ({"provider_id": "test://pool"}, False),
    "neither": ({"machine_name": "", "provider_id": "test://2"}, False),
}


@pytest.mark.parametrize(("changes", "exists"), OWNERS.values(), ids=OWNERS)
def test_machine_of_a_claim_is_found(changes: dict[str, Any], *, exists: bool) -> None:
    """The signer deletes a claim without a Machine."""
    caches = FakeCaches()
    caches.clusters.replace({str(HOME): read_cluster(kube_objects.cluster())})
    caches.machines.replace({"machine": read_machine(kube_objects.machine("machine-1"))})
    caches.pools.replace({"pool": read_pool(kube_objects.pool("pool-1", "test://pool"))})
    fields = {"cluster": HOME, "provider_id": PROVIDER_ID, **changes}
    now = datetime(2026, 11, 22, tzinfo=UTC)
    assert caches.has_machine(attested_node(key="ab" * 32, last_attested=now, **fields)) == exists


SERVICES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "both address families": (
        {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}},
        {"10.96.0.1", "fd00::1"},
    ),
    "the older field alone": ({"spec": {"clusterIP": "10.96.0.1"}}, {"10.96.0.1"}),
    "no address": ({"spec": {}}, set()),
    "no spec": ({}, set()),
}


@pytest.mark.parametrize(("service", "addresses"), SERVICES.values(), ids=SERVICES)
def test_s3_every_address_of_the_api_server_is_read(
    service: dict[str, Any], addresses: set[str]
) -> None:
    """A node could get a serving certificate for an address that was missed."""
    assert read_service(service).keys() == addresses


@pytest.mark.parametrize("kind", ["clusters", "machines", "pools", "bootstraps", "nodes"])
def test_namespace_is_incomplete_while_one_object_of_any_kind_is_not_stored(kind: str) -> None:
    """An object that is not cached must not look like one that does not exist."""
    caches = FakeCaches()
    caches.require_complete("team-a")
    getattr(caches, kind).hold("team-a/waits", 1)
    with pytest.raises(ApiServerUnavailable, match="of namespace team-a exceed its CPU budget"):
        caches.require_complete("team-a")
    caches.require_complete("team-b")
