"""What a tenant and its nodes can write, and what its API server sends, changes no command."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.names import PENDING_REASON_ANNOTATION
from common.requests.csr import encode_request
from tests.fakes.api_server import api_server
from tests.harness import kubeconfig
from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.node import Node
from tests.harness.objects import CORE
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer
from tests.integration import csrs
from tests.integration.claim_bodies import REQUESTS, claim_body, request_body
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.plain_requests import csr
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{RBAC_GROUP}/v1"
REFUSED = r"^403 .*only the attestation signer and the operators .* may write"
EDITOR = "editor"
SETTINGS = "attestation.cluster.x-k8s.io/signer-settings"
"""The label of a replica's Lease."""


@pytest.fixture
def operator(fleet: Fleet) -> Operator:
    """Return an administrator of the management cluster."""
    return Operator(fleet, fleet.management.admin_config)


@pytest.fixture
def editor(fleet: Fleet) -> Iterator[Client]:
    """Return a user with all rights in the namespace of the second tenant."""
    admin, namespace = fleet.management.admin, fleet.second.namespace
    path = f"{RBAC}/namespaces/{namespace}/rolebindings"
    # As the role `admin` of Kubernetes, with the CRDs.
    role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "User", "name": EDITOR}]
    binding = {"metadata": {"name": EDITOR}, "roleRef": role, "subjects": subjects}
    admin.create(path, binding)
    yield fleet.management.client(EDITOR)
    admin.delete(f"{path}/{EDITOR}")


def nodes_path(tenant: WorkloadTenant) -> str:
    """Return the path of a tenant's AttestedNodes."""
    return csrs.ATTESTED_NODES.format(tenant.namespace)


def key_of(node: Node) -> str:
    """Return the digest of a node's endorsement key."""
    [digest] = node.registration().values()
    return digest.removeprefix("sha256:")


def is_refused(client: Client, path: str, body: dict[str, Any]) -> bool:
    """Return whether the policy refuses to create an object; nothing is stored."""
    try:
        client.create(f"{path}?dryRun=All", body)
    except ApiError as error:
        return "only the attestation signer" in str(error)
    return False


def test_tenant_with_edit_rights_writes_no_claims_and_no_requests(
    machines: Machines, fleet: Fleet, editor: Client
) -> None:
    tenant = fleet.second
    node = machines.registered(tenant)
    assert node.call().status == 0, "the signer writes the AttestedNode"
    path, forged = nodes_path(tenant), claim_body(tenant, "mine", "ab" * 32)
    wait_until(lambda: is_refused(editor, path, forged), what="the policy is in force")
    requests = REQUESTS.format(tenant.namespace)
    with pytest.raises(ApiError, match=REFUSED):
        editor.create(requests, request_body("mine"))
    [own] = [
        f"{path}/{each['metadata']['name']}"
        for each in editor.list(path)
        if each["spec"]["nodeName"] == node.name
    ]
    with pytest.raises(ApiError, match=REFUSED):
        editor.patch(own, {"spec": {"endorsementKey": "ab" * 32}})
    with pytest.raises(ApiError, match=REFUSED):
        editor.patch(own, {"metadata": {"finalizers": ["example.org/keep"]}})
    with pytest.raises(ApiError, match=REFUSED):
        editor.delete(own)
    with pytest.raises(ApiError, match=REFUSED):
        editor.delete(path)
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


def test_named_operators_write_claims_and_other_administrators_do_not(fleet: Fleet) -> None:
    """A GitOps controller with all rights must not write what it finds in a tenant's repository."""
    management, tenant = fleet.management, fleet.second
    path, body = nodes_path(tenant), claim_body(tenant, "restored", "ab" * 32)
    named = management.client("restorer", "kubeadm:cluster-admins")
    other = management.client("gitops", "administrators")
    with bound_to_cluster_admin(fleet, "kubeadm:cluster-admins", "administrators"):
        wait_until(lambda: is_refused(other, path, body), what="the policy is in force")
        wait_until(lambda: named.may("create", "secrets"), what="the role is bound")
        place = f"{path}/{named.create(path, body)['metadata']['name']}"
        named.delete(place)
        named.create(path, body)
        with pytest.raises(ApiError, match=REFUSED):
            other.delete(place)
        # It deletes the objects of a namespace that is deleted.
        account = "system:serviceaccount:kube-system:namespace-controller"
        management.client(account).delete(place)
        with pytest.raises(ApiError, match=REFUSED):
            other.create(path, body)


def test_nobody_else_writes_the_leases_by_which_replicas_share_clusters(fleet: Fleet) -> None:
    """Who renewed a Lease took a share of the Clusters, and no replica served them."""
    management = fleet.management
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    other = management.client("gitops", "administrators")
    lease: dict[str, Any] = {
        "metadata": {"name": "idle", "labels": {SETTINGS: "x"}},
        "spec": {"holderIdentity": "nobody"},
    }
    with bound_to_cluster_admin(fleet, "administrators"):
        wait_until(lambda: is_refused(other, path, lease), what="the policy is in force")
        wait_until(
            lambda: any(
                SETTINGS in each["metadata"].get("labels", {}) for each in other.list(path)
            ),
            what="the signer has its Lease",
        )
        # Signers that were killed have left theirs.
        own = max(
            (each for each in other.list(path) if SETTINGS in each["metadata"].get("labels", {})),
            key=lambda each: each["spec"]["renewTime"],
        )
        place = f"{path}/{own['metadata']['name']}"
        for patch in (
            {"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}},
            {"metadata": {"labels": {SETTINGS: None}}},
        ):
            with pytest.raises(ApiError, match=REFUSED):
                other.patch(place, patch)
        with pytest.raises(ApiError, match=REFUSED):
            other.delete(place)
        # Leases of other programs are not restricted, and become no Leases of the signer.
        del lease["metadata"]["labels"]
        other.create(path, lease)
        with pytest.raises(ApiError, match=REFUSED):
            other.patch(f"{path}/idle", {"metadata": {"labels": {SETTINGS: "x"}}})
        other.delete(f"{path}/idle")


@contextmanager
def bound_to_cluster_admin(fleet: Fleet, *groups: str) -> Iterator[None]:
    """Give groups all rights."""
    admin, path = fleet.management.admin, f"{RBAC}/clusterrolebindings"
    subjects = [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": name} for name in groups]
    role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
    name = "tenant-objects"
    admin.create(path, {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    try:
        yield
    finally:
        admin.delete(f"{path}/{name}")


def test_attested_node_of_a_tenant_is_no_key_of_another(
    machines: Machines, operator: Operator
) -> None:
    """Without the policy, `replace` gave team-a's Machine to the TPM of team-b (shown)."""
    fleet = operator.fleet
    victim, attacker = machines.registered(fleet.first), machines.power_on(fleet.second)
    assert victim.call().status == 0
    path = nodes_path(fleet.second)
    body = claim_body(fleet.second, "mine", key_of(victim))
    forged = fleet.management.admin.create(path, body)["metadata"]["name"]
    try:
        name, new = f"{cluster_of(fleet.second)}/mine", key_of(attacker)
        for command in (
            ("replace", name, new),
            ("ban", name, "--reason", "stolen"),
            ("ban", name, "--lift"),
            ("release", name, "--cluster", cluster_of(fleet.second)),
        ):
            call = operator.call(*command, "--yes")
            assert (call.status, call.output) == (1, "")
            assert f"node mine of Cluster {cluster_of(fleet.second)} holds no endorsement key" in (
                call.complaint
            )
        [item] = [i for i in operator.list("nodes", "-n", "team-b") if i["node"] == "mine"]
        assert item["state"] == "ClaimIncomplete"
    finally:
        fleet.management.admin.delete(f"{path}/{forged}")
    keys = {k["metadata"]["name"]: k for k in fleet.management.admin.list(csrs.ENDORSEMENT_KEYS)}
    assert new not in keys
    assert "banned" not in keys[key_of(victim)]["spec"]
    own = f"{cluster_of(fleet.first)}/{victim.name}"
    assert key_of(victim) in operator.call("ban", own, "--reason", "stolen", "--yes").output


FORGED = "EndorsementKeyNotRegistered: run register"


class ForgedReason(Script):
    """A requester that files its request with the annotation of the signer."""

    def put(self, name: str, data: bytes) -> str:
        request = base64.b64encode(encode_request(self.pkcs10, data)).decode()
        name = name or csrs.new_name()
        body = {
            "metadata": {"name": name, "annotations": {PENDING_REASON_ANNOTATION: FORGED}},
            "spec": {
                "signerName": self.signer_name,
                "usages": sorted(self.usages),
                "request": request,
            },
        }
        self.client.create(csrs.CSRS, body)
        return name


def test_reason_that_a_requester_files_is_not_shown_as_the_signers(
    machines: Machines, operator: Operator, signer: Signer
) -> None:
    """`pending` printed a ready `register` command for an answer with such a reason (shown).

    The signer is down, so the annotation stays as it was filed.
    """
    node = machines.known()
    cluster = ("--cluster", cluster_of(node.tenant))
    signer.stop()
    try:
        script = ForgedReason(node)
        found = {item["request"]: item for item in operator.list("pending", *cluster)}
        request = found[script.offer]
        assert (request["reason"], request["reported"]) == ("Pending", FORGED)
        assert request["machine"] == node.name
        assert "kubectl attestation register" not in operator.call("pending", *cluster).output
    finally:
        signer.start()
        signer.wait_until_ready()
    script.waiting_for("EndorsementKeyNotRegistered")


def test_request_whose_name_is_a_command_is_shown_nowhere(
    machines: Machines, operator: Operator
) -> None:
    """An API server stores any name of a request that has no slash and no per cent sign."""
    node = machines.registered()
    admin, name = node.tenant.workload.admin, f"{node.name} --all; touch pwned"
    assert admin.create(csrs.CSRS, csr(name))["metadata"]["name"] == name
    assert node.call().status == 0, "the signer goes on"
    cluster = ("--cluster", cluster_of(node.tenant))
    for command in ("pending", "problems", "doctor"):
        assert "pwned" not in operator.call(command, *cluster).output


def test_api_server_with_endless_empty_pages_delays_no_command(
    operator: Operator, fleet: Fleet, tmp_path: Path
) -> None:
    """`clusters` and `pending` of the whole fleet never ended (shown, 90 s)."""
    management, namespace, name = fleet.management, fleet.second.namespace, "endless"
    page = {"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}
    with api_server(lambda request: request.give(page), tmp_path) as server:
        authority = server.authority.pair.certificate
        text = kubeconfig.with_token(server.url, authority, "t")
        management.create_cluster(namespace, name, endpoint=server.url, annotations=OPT_IN)
        secret = management.store_kubeconfig(namespace, name, text)["metadata"]["name"]
        try:
            for command in ("clusters", "pending"):
                call = operator.call(command, "-n", namespace)
                assert "continues after an empty page" in call.output + call.complaint
            states = {
                i["cluster"]: i["apiServer"] for i in operator.list("clusters", "-n", namespace)
            }
            assert states[fleet.second.name] == "reachable"
        finally:
            path = f"/apis/{CORE}/v1beta2/namespaces/{namespace}/clusters/{name}"
            management.admin.delete(path)
            management.admin.delete(f"/api/v1/namespaces/{namespace}/secrets/{secret}")
