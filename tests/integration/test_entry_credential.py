"""The entry credential brings nodes back, and a thief gets nothing from it.

Source: packaging/signer/entry-credential.yaml.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from common.names import BUILTIN_SERVING_SIGNER, CLIENT_SIGNER, SERVING_SIGNER
from signer.verify.requests.request import ENTRY_GROUP, ENTRY_USER
from tests.harness.client import ApiError, Client, Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING
from tests.integration import csrs, plain_requests
from tests.integration.credentials import DAY, hold, let_token_run_out
from tests.integration.kubeconfigs import administrators_kubeconfig
from tests.integration.node_join import call, join, whoami
from tests.integration.operator_calls import Call, Operator, cluster_of
from tests.integration.scripted_node import Script

CREDENTIAL = str(PACKAGING / "entry-credential.yaml")
POLICIES = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    "/entry.attestation.cluster.x-k8s.io"
)
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@pytest.fixture(scope="module")
def installed(fleet: Fleet, signer: Signer) -> Iterator[Call]:
    """Install it in the second workload cluster as docs/node.md says; return the command's call."""
    tenant = fleet.second
    tenant.workload.start_controllers()
    tenant.workload.kubectl("apply", "--server-side", "-f", CREDENTIAL)
    with administrators_kubeconfig(fleet):
        call_of_operator = printed(fleet, status=0)
    policy = of_cluster(tenant, bootstrapGroups=["system:bootstrappers", ENTRY_GROUP])
    with signer.with_policies(policy):
        yield call_of_operator
    tenant.workload.kubectl("delete", "--ignore-not-found", "-f", CREDENTIAL)


def printed(fleet: Fleet, *, status: int) -> Call:
    """Repeat the operator's command until the API server has the present state of the policy."""
    operator = Operator(fleet, fleet.management.admin_config)
    calls: list[Call] = []

    def has_ended() -> bool:
        calls.append(operator.call("entry-credential", cluster_of(fleet.second)))
        return calls[-1].status == status

    wait_until(has_ended, what=f"entry-credential ends with {status}")
    return calls[-1]


@pytest.fixture(scope="module")
def thief(fleet: Fleet, installed: Call) -> Client:
    """Return a client of somebody who has copied the credential from a node."""
    [user] = yaml.safe_load(installed.output)["users"]
    return fleet.second.workload.with_token(user["user"]["token"])


def give_entry_credential(node: Node, installed: Call) -> None:
    """Write the file of the node image."""
    path = node.bootstrap_kubeconfig.with_name("entry-kubelet.conf")
    path.write_text(installed.output, encoding="utf-8")


def test_node_that_was_off_for_months_comes_back_without_a_new_token(
    machines: Machines, fleet: Fleet, installed: Call
) -> None:
    node = machines.registered(fleet.second)
    assert join(node).status == 0
    let_token_run_out(node)
    now = time.time()
    hold(node, node.tenant.workload.authority, now - 90 * DAY, now - 83 * DAY)
    give_entry_credential(node, installed)
    assert call(node).status == 0
    assert whoami(node) == f"system:node:{node.name}"
    filed = [csr["spec"]["username"] for csr in csrs.of_node(node)]
    assert ENTRY_USER in filed


def test_thief_with_another_tpm_is_refused_as_with_a_bootstrap_token(
    machines: Machines, fleet: Fleet, thief: Client
) -> None:
    victim = machines.registered(fleet.second)
    other = machines.power_on(fleet.second, name=victim.name)
    other.provider_id = victim.provider_id
    assert Script(other, client=thief).refusal() == "EndorsementKeyMismatch"


READS = {
    "Secrets": "/api/v1/namespaces/kube-system/secrets",
    "its own Secret": "/api/v1/namespaces/node-attestation-entry/secrets/entry-token",
    "Nodes": "/api/v1/nodes",
    "ConfigMaps": "/api/v1/namespaces/kube-system/configmaps",
}


@pytest.mark.parametrize("path", READS.values(), ids=READS)
def test_thief_reads_nothing_but_requests(thief: Client, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        thief.get(path)
    assert refused.value.code == 403
    assert "items" in thief.get(csrs.CSRS)


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a client certificate of any user": (
        {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
        {},
    ),
    "a kubelet's certificate without attestation": (
        {"signerName": "kubernetes.io/kube-apiserver-client-kubelet"},
        {},
    ),
    "a serving certificate": ({"signerName": BUILTIN_SERVING_SIGNER}, {}),
    "an attested serving certificate": ({"signerName": SERVING_SIGNER}, {}),
    "a usage that kubelets do not have": ({"usages": ["client auth", "cert sign"]}, {}),
    "a request that cannot be deleted": ({}, {"finalizers": ["example.com/never"]}),
}


@pytest.mark.parametrize(("spec", "metadata"), REQUESTS.values(), ids=REQUESTS)
def test_thief_creates_no_other_request(
    thief: Client, spec: dict[str, Any], metadata: dict[str, Any]
) -> None:
    body = request(**spec)
    body["metadata"] |= metadata
    with pytest.raises(ApiError, match="entry") as refused:
        thief.create(csrs.CSRS, body)
    assert refused.value.code == 403
    thief.create(csrs.CSRS, request())


def request(**spec: object) -> dict[str, Any]:
    """Return a CSR that the admission policy accepts, with changes."""
    usages = ["digital signature", "client auth"]
    fields = {
        "signerName": CLIENT_SIGNER,
        "usages": usages,
        "request": plain_requests.request("thief"),
    }
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "thief-"},
        "spec": fields | spec,
    }


@pytest.fixture
def administrator(fleet: Fleet, thief: Client) -> Iterator[Client]:
    """Return the thief after a binding has given all rights to the service account by mistake."""
    admin = fleet.second.workload.admin
    binding = {
        "metadata": {"name": "by-mistake"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": ENTRY_GROUP}
        ],
    }  # fmt: skip
    admin.create(BINDINGS, binding)
    wait_until(lambda: thief.may("create", "pods"), what="the binding is in force")
    yield thief
    admin.delete(f"{BINDINGS}/by-mistake")
    wait_until(lambda: not thief.may("create", "pods"), what="the binding has ended")


def test_no_binding_gives_the_credential_a_write(administrator: Client, fleet: Fleet) -> None:
    undecided = request(signerName="example.com/another")
    csr = fleet.second.workload.admin.create(csrs.CSRS, undecided)["metadata"]["name"]
    path = f"{csrs.CSRS}/{csr}"
    approved = {"type": "Approved", "status": "True", "reason": "Thief", "message": "-"}
    config_map = {"metadata": {"name": "thief"}}
    attempts: tuple[Callable[[], Object], ...] = (
        lambda: administrator.patch(f"{path}/approval", {"status": {"conditions": [approved]}}),
        lambda: administrator.patch(path, {"metadata": {"annotations": {"a": "b"}}}),
        lambda: administrator.delete(path),
        lambda: administrator.create("/api/v1/namespaces/default/configmaps", config_map),
    )
    for attempt in attempts:
        with pytest.raises(ApiError, match="may only create CertificateSigningRequests"):
            attempt()
    # Kubernetes exempts admission policies and their bindings: this policy cannot protect itself.
    administrator.patch(f"{POLICIES}?dryRun=All", {"metadata": {"annotations": {"a": "b"}}})


def test_credential_without_admission_policy_is_not_printed(fleet: Fleet, installed: Call) -> None:
    assert installed.status == 0
    workload = fleet.second.workload
    kind, name = "validatingadmissionpolicybinding", "entry.attestation.cluster.x-k8s.io"
    workload.kubectl("delete", kind, name)
    with administrators_kubeconfig(fleet):
        try:
            refused = printed(fleet, status=1)
        finally:
            workload.kubectl("apply", "--server-side", "-f", CREDENTIAL)
            printed(fleet, status=0)
    assert refused.output == ""
    assert "does not limit the entry credential" in refused.complaint
