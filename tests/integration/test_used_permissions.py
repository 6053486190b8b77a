"""The shipped permissions are those that are used: the audit logs of API servers say so."""

import base64
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from signer.inventory.custom_resources.default_policy import NAME as DEFAULT
from signer.inventory.ended_certificates import POLICY_NAMES
from signer.kinds.resources import ADMISSION_POLICY_BINDINGS
from signer.verify.requests.request import ENTRY_GROUP, ENTRY_USER
from tests.harness import clocks, objects
from tests.harness.api_relay import relay
from tests.harness.client import ApiError, Client, documents
from tests.harness.fleet import WorkloadTenant
from tests.harness.management import ACCOUNT, NAMESPACE, POLICIES, ManagementCluster
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import OPT_IN, Signer
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.workload import PACKAGING, SIGNER, WorkloadCluster
from tests.integration import csrs
from tests.integration.bindings import BINDINGS, create_binding, existing_bindings
from tests.integration.credentials import client_of
from tests.integration.kubelet_nodes import NODES, body_of, labels_of
from tests.integration.moves import Site
from tests.integration.operator_calls import call_operator
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.timeout(600)

Right = tuple[str, str, str]
"""API group, resource or subresource, and verb."""

NAME = "audited"
ACCOUNT_USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
OPTIONAL = (
    *("node-labels-rbac.yaml", "node-taints-rbac.yaml"),
    "binding-removal-rbac.yaml",
)
"""Files with further rights of the signer in a workload cluster."""
ENTRY = "entry-credential.yaml"
LATER = timedelta(hours=30)
"""Claims are deleted a day late. The certificates of the API servers are valid for two days."""
KEY = "5" * 64
OLD_CHALLENGE_KEY = base64.b64encode(b"2026-01-01T00:00:00+00:00").decode()
API = "attestation.cluster.x-k8s.io/v1alpha1"


def audit_flags(directory: Path) -> list[str]:
    """Return flags that log every request of the signer, and of the entry credential."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": [ACCOUNT_USER, SIGNER, ENTRY_USER]},
            {"level": "None"},
        ],
    }
    (directory / "audit.yaml").write_text(yaml.safe_dump(policy), encoding="utf-8")
    return [
        f"--audit-policy-file={directory / 'audit.yaml'}",
        f"--audit-log-path={directory / 'used-rights.log'}",
    ]


class AuditedManagement(ManagementCluster):
    """A management cluster with an audit log of the signer."""

    def _apiserver_flags(self) -> list[str]:
        return [*super()._apiserver_flags(), *audit_flags(self.directory)]


class AuditedWorkload(WorkloadCluster):
    """A workload cluster with an audit log of the signer."""

    def _apiserver_flags(self) -> list[str]:
        return [*super()._apiserver_flags(), *audit_flags(self.directory)]


@pytest.fixture
def management(assets: Path, tmp_path: Path) -> Iterator[AuditedManagement]:
    with AuditedManagement("management", tmp_path / "management", assets) as running:
        yield running


@pytest.fixture
def workload(assets: Path, tmp_path: Path) -> Iterator[AuditedWorkload]:
    with AuditedWorkload("workload", tmp_path / "workload", assets) as running:
        yield running


@pytest.fixture
def node(
    management: AuditedManagement, workload: AuditedWorkload, vendor: TrustDomain, tmp_path: Path
) -> Iterator[Node]:
    """Return a node of an opted-in Cluster. Its Machine has a KubeadmConfig, and no key yet."""
    tenant = WorkloadTenant(namespace=NAME, workload=workload, name=NAME)
    with SoftwareTpm(vendor, seed=NAME) as tpm:
        node = Node(tenant, NAME, tpm, tmp_path / "node")
        token = workload.bootstrap_token()
        node.give_token(token)
        management.create_namespace(NAME)
        management.create_cluster(NAME, NAME, endpoint=workload.url, annotations=OPT_IN)
        management.store_kubeconfig(NAME, NAME, workload.signer_kubeconfig())
        management.store_authority(NAME, NAME, workload.authority.pair)
        management.create_object(NAME, objects.kubeadm_config(NAME, token=token))
        machine = Machine(NAME, provider_id=node.provider_id, bootstrap_config=NAME)
        management.create_machine(NAME, NAME, machine)
        yield node


def granted(file: str) -> set[Right]:
    """Return the rights of a file of the packaging.

    The right to approve and to sign is no right to send a request: admission asks for it.
    """
    return {
        (group, resource, verb)
        for document in documents(PACKAGING / file)
        if document["kind"] in {"ClusterRole", "Role"}
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if resource != "signers"
    }


def used(directory: Path, user: str, rights: set[Right]) -> tuple[set[Right], set[Right]]:
    """Return what a user asked for, and what of it was forbidden."""
    asked, forbidden = set[Right](), set[Right]()
    complete, _, _ = (directory / "used-rights.log").read_text("utf-8").rpartition("\n")
    for event in map(json.loads, complete.splitlines()):
        target = event.get("objectRef")
        # Every user may ask about itself. The harness asks so whether RBAC is applied.
        if target is None or target["resource"].startswith("selfsubject"):
            continue
        if event["user"]["username"] != user:
            continue
        names = [target["resource"], target.get("subresource")]
        right = (target.get("apiGroup", ""), "/".join(filter(None, names)), event["verb"])
        any_resource = (right[0], "*", right[2])
        asked.add(any_resource if any_resource in rights else right)
        code = event.get("responseStatus", {}).get("code")
        if code == 403:
            forbidden.add(right)
        if (event["verb"], code) == ("patch", 201):
            # A server-side apply that creates the object.
            asked.add((*right[:2], "create"))
    return asked, forbidden


def unused(rights: set[Right], asked: set[Right]) -> set[Right]:
    """Return the rights that the signer does not use; who may list objects may also get them."""
    listed = {right[:2] for right in asked if right[2] == "list"}
    return {r for r in rights - asked if not (r[2] == "get" and r[:2] in listed)}


def store_policy(management: ManagementCluster, **spec: object) -> None:
    """Create the one policy, or replace its `spec`."""
    body = {
        "apiVersion": API,
        "kind": "KubeletAttestationPolicy",
        "metadata": {"name": DEFAULT},
        "spec": spec,
    }
    try:
        current = management.admin.get(f"{POLICIES}/{DEFAULT}")
    except ApiError:
        management.admin.create(POLICIES, body)
    else:
        management.admin.replace(f"{POLICIES}/{DEFAULT}", {**current, "spec": spec})


def is_policy_in_force(management: ManagementCluster) -> bool:
    """Return whether the signer has written the status of the policy's present generation."""
    policy = management.admin.get(f"{POLICIES}/{DEFAULT}")
    generation: int = policy["metadata"]["generation"]
    observed: int = policy.get("status", {}).get("observedGeneration", 0)
    return observed == generation


def join_and_renew(management: ManagementCluster, node: Node) -> None:
    """Let a key wait for its approval, join, renew, and then need the right to renew."""
    config = yaml.safe_load(node.bootstrap_kubeconfig.read_text(encoding="utf-8"))
    own_token = node.tenant.workload.with_token(config["users"][0]["user"]["token"])
    script = Script(node, client=own_token)
    script.waiting_for("EndorsementKeyNotRegistered")
    requests = f"/apis/{API}/namespaces/{NAME}/endorsementkeyrequests"
    wait_until(lambda: bool(management.admin.list(requests)), what="the key is recorded")
    with SoftwareTpm(TrustDomain(node.directory / "other"), seed="other") as tpm:
        other = Node(node.tenant, NAME, tpm, node.directory / "other-node")
        other.provider_id = node.provider_id
        Script(other, client=own_token).waiting_for("EndorsementKeyNotRegistered")
        wait_until(
            lambda: len(management.admin.list(requests)[0]["spec"]["keys"]) == 2,
            what="the other key is recorded, too",
        )
    path = f"/apis/{objects.CORE}/v1beta2/namespaces/{NAME}/machines/{NAME}"
    management.admin.patch(path, {"metadata": {"annotations": node.registration()}})
    wait_until(lambda: not management.admin.list(requests), what="the record is removed")
    assert script.attest() == {"Approved": "Attested"}
    as_node = node.tenant.workload.client(f"system:node:{NAME}", "system:nodes")
    assert Script(node, client=as_node).attest() == {"Approved": "Attested"}
    store_policy(management, accessReview="Require")
    wait_until(lambda: is_policy_in_force(management), what="the changed policy is in force")
    renewal, name = Script(node, client=as_node), csrs.new_name()
    renewal.put(name, renewal.encoded(name))
    csrs.waiting_for(as_node, name, "AccessNotAllowed")


def end_certificates(management: ManagementCluster, node: Node) -> None:
    """Let the signer list what is ended, and delete the list."""
    admin = node.tenant.workload.admin
    ban = ("ban", f"{NAME}/{NAME}/{NAME}", "--yes")
    for arguments in (("--reason", "stolen", "--now"), ("--lift", "--certificates-too")):
        call = call_operator(management.admin_config, *ban, *arguments)
        assert call.status == 0, call.complaint
    path = ADMISSION_POLICY_BINDINGS.object_path(POLICY_NAMES[0])
    wait_until(lambda: is_gone(admin, path), what="the list is deleted", seconds=120)


def create_stale_claim(cluster: ManagementCluster) -> None:
    """Create the claim of a Machine that is long gone."""
    management = cluster.admin
    past = (datetime.now(UTC) - timedelta(days=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    holder = {"clusterNamespace": NAME, "clusterName": NAME, "nodeName": "gone"}
    key = {"heldBy": {**holder, "providerID": "test://gone", "basis": "Registered", "since": past}}
    node = {"clusterName": NAME, "nodeName": "gone", "providerID": "test://gone"}
    node |= {"machineName": "gone", "endorsementKey": KEY, "notAfter": past, "lastAttested": past}
    head = {"apiVersion": API, "kind": "EndorsementKey", "metadata": {"name": KEY}}
    management.create(csrs.ENDORSEMENT_KEYS, {**head, "spec": key})
    cluster.backdate("attestation.cluster.x-k8s.io/endorsementkeys", KEY, past)
    head = {"apiVersion": API, "kind": "AttestedNode", "metadata": {"name": f"gone.{NAME}"}}
    management.create(csrs.ATTESTED_NODES.format(NAME), {**head, "spec": node})


def is_gone(client: Client, path: str) -> bool:
    """Return whether an object does not exist."""
    try:
        client.get(path)
    except ApiError as error:
        return error.code == 404
    return False


def clean_up(management: ManagementCluster, signer: Signer) -> None:
    """Run a signer that deletes a stale claim, and replaces an old challenge key."""
    admin = management.admin
    create_stale_claim(management)
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/node-attestation-challenge-keys"
    before = admin.patch(secret, {"data": {"since": OLD_CHALLENGE_KEY}})["data"]["current"]
    with signer:
        signer.wait_until_ready()
        token = management.signer_kubeconfig().partition("token: ")[2].split()[0]
        assert signer.ask("/metrics", token=token).status_code == 403
        wait_until(
            lambda: admin.get(secret)["data"]["current"] != before, what="a new key", seconds=120
        )
        claim = (
            f"{csrs.ATTESTED_NODES.format(NAME)}/gone.{NAME}",
            f"{csrs.ENDORSEMENT_KEYS}/{KEY}",
        )
        wait_until(
            lambda: all(is_gone(admin, path) for path in claim),
            what="the stale claim is deleted",
            seconds=180,
        )


def delete_expired_offers(node: Node, site: Site, directory: Path) -> None:
    """Run a signer whose clock is ahead: it deletes offers only once the API server agrees.

    It is not ready, and serves what no other one serves.
    """
    workload, ahead = node.tenant.workload, LATER.total_seconds()
    offers = [csr["metadata"]["name"] for csr in csrs.offers(node)]
    with relay(site.management, directory / "relay") as management:
        through = site.management.signer_kubeconfig().replace(site.management.url, management.url)
        signer = Signer(site, directory / "ahead", kubeconfig=through)
        signer.environment = os.environ | clocks.shifted(ahead)
        with signer:
            wait_until(lambda: "Served" in signer.states().values(), what="a round of maintenance")
            assert not any(is_gone(workload.admin, f"{csrs.CSRS}/{name}") for name in offers)
            management.ahead = ahead
            wait_until(
                lambda: any(is_gone(workload.admin, f"{csrs.CSRS}/{name}") for name in offers),
                what="an offer without a verdict is deleted",
                seconds=120,
            )


def has_condition(management: ManagementCluster) -> bool:
    """Return whether the signer has written the condition of the Cluster."""
    path = f"/apis/{objects.CORE}/v1beta2/namespaces/{NAME}/clusters/{NAME}"
    conditions = management.admin.get(path)["status"]["conditions"]
    return "AutoApproveBindingsRemoved" in {condition["type"] for condition in conditions}


def test_signer_uses_the_permissions_of_the_packaging_and_no_others(
    management: AuditedManagement, workload: AuditedWorkload, node: Node, tmp_path: Path
) -> None:
    workload.allow_automatic_approval()
    workload.admin.create(NODES, {"metadata": {"name": "older"}})
    site = Site(management)
    with Signer(site, tmp_path / "now").create_default_policy():
        wait_until(
            lambda: has_condition(management),
            what="the bindings stay for the older Node",
            seconds=180,  # two rounds of maintenance
        )
        workload.admin.delete(f"{NODES}/older")
        wait_until(
            lambda: not existing_bindings(workload), what="the bindings are removed", seconds=120
        )
        join_and_renew(management, node)
        end_certificates(management, node)
    clean_up(management, Signer(site, tmp_path / "later").use_secure_metrics())
    delete_expired_offers(node, site, tmp_path)
    for cluster, user, file in (
        (management, ACCOUNT_USER, "management-rbac.yaml"),
        (workload, SIGNER, "workload-rbac.yaml"),
    ):
        rights = granted(file)
        asked, forbidden = used(cluster.directory, user, rights)
        assert (forbidden, asked - rights) == (set(), set())
        assert unused(rights, asked) == set(), file


def may_create_requests(client: Client) -> bool:
    """Return whether the API server accepts a token that was just made, and applies its role."""
    try:
        return client.may("create", "certificatesigningrequests", group="certificates.k8s.io")
    except ApiError as error:
        if error.code != 401:
            raise
    return False


def join_with_entry_credential(management: ManagementCluster, node: Node) -> None:
    """Join with the token that kube-controller-manager writes for the entry credential.

    Two calls end while the node waits. The second one reads the request by its name, and lists it
    when it has not changed for five seconds.
    """
    workload = node.tenant.workload
    workload.start_controllers()
    workload.kubectl("apply", "--server-side", "-f", str(PACKAGING / ENTRY))
    secret = "/api/v1/namespaces/node-attestation-entry/secrets/entry-token"
    wait_until(lambda: "token" in workload.admin.get(secret).get("data", {}), what="the token")
    token = base64.b64decode(workload.admin.get(secret)["data"]["token"]).decode()
    entry = workload.with_token(token)
    wait_until(lambda: may_create_requests(entry), what="the entry credential is accepted")
    node.give_token(token)
    node.settings = {"timeoutSeconds": 15}
    for _ in range(2):
        wait_until(
            lambda: "EndorsementKeyNotRegistered" in node.call().complaint,
            what="a call in which the signer has answered",
            seconds=120,
        )
    machine = f"/apis/{objects.CORE}/v1beta2/namespaces/{NAME}/machines/{NAME}"
    management.admin.patch(machine, {"metadata": {"annotations": node.registration()}})
    wait_until(lambda: node.call().status == 0, what="the node joins", seconds=120)


def use_optional_rights(node: Node) -> None:
    """Let the signer label a Node, and delete a binding."""
    workload = node.tenant.workload
    client_of(node).create(NODES, body_of(node))
    wait_until(lambda: bool(labels_of(workload.admin, NAME)), what="the Node is labeled")
    create_binding(workload, "approves-all")
    binding = f"{BINDINGS}/approves-all"
    wait_until(lambda: is_gone(workload.admin, binding), what="the binding is deleted", seconds=120)


def test_optional_files_grant_what_is_used_and_no_more(
    management: AuditedManagement, workload: AuditedWorkload, node: Node, tmp_path: Path
) -> None:
    for file in OPTIONAL:
        workload.kubectl("apply", "--server-side", "-f", str(PACKAGING / file))
    account = workload.client(SIGNER, SIGNER)
    wait_until(lambda: account.may("patch", "nodes"), what="the API server applies the roles")
    store_policy(
        management,
        nodeLabels="Enabled",
        bootstrapGroups=["system:bootstrappers", ENTRY_GROUP],
    )
    with Signer(Site(management), tmp_path / "signer") as signer:
        signer.wait_until_ready()
        wait_until(lambda: is_policy_in_force(management), what="the policy is in force")
        join_with_entry_credential(management, node)
        use_optional_rights(node)
    optional = {right for file in OPTIONAL for right in granted(file)}
    rights = optional | granted("workload-rbac.yaml")
    asked, forbidden = used(workload.directory, SIGNER, rights)
    assert (forbidden, asked - rights, unused(optional, asked)) == (set(), set(), set())
    rights = granted(ENTRY)
    asked, forbidden = used(workload.directory, ENTRY_USER, rights)
    assert (forbidden, asked - rights, unused(rights, asked)) == (set(), set(), set())
