"""The commands of operators on real API servers, with the running signer and real nodes."""

import base64
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from signer.operator_cli.management.api import connect
from tests.harness.client import Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.programs import OPERATOR
from tests.harness.signer import OPT_IN, Signer
from tests.integration import csrs
from tests.integration.operator_calls import Operator, cluster_of, key_of, policy_file, register
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

KEYS = csrs.ENDORSEMENT_KEYS
CLUSTERS = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters"


@pytest.fixture
def operator(fleet: Fleet) -> Operator:
    """Return an administrator of the management cluster."""
    return Operator(fleet, fleet.management.admin_config)


def renew(node: Node) -> str:
    """Renew, and return what the node reports."""
    return node.call("renew", "--kubeconfig", str(node.kubeconfig())).complaint


def spec_of(operator: Operator, node: Node) -> Object:
    """Return the spec of a node's EndorsementKey."""
    spec: Object = operator.fleet.management.admin.get(f"{KEYS}/{key_of(node)}")["spec"]
    return spec


def test_whole_output_of_endorsement_key_registers_the_node(
    machines: Machines, operator: Operator, tmp_path: Path
) -> None:
    node = machines.known()
    pasted = tmp_path / "key.txt"
    pasted.write_text(node.call("endorsement-key").output, encoding="utf-8")
    call = register(operator, node, pasted)
    assert (call.status, call.output) == (0, f"EndorsementKey {key_of(node)}: created\n")
    assert "BEGIN PUBLIC KEY" in spec_of(operator, node)["publicKey"]
    assert node.call().status == 0
    assert csrs.held(node, operator.fleet.management.admin)["basis"] == "Registered"
    assert register(operator, node, pasted).output.endswith(": unchanged\n")
    assert len(spec_of(operator, node)["registeredFor"]) == 1


def test_signer_connects_with_a_kubeconfig_of_few_rights(
    machines: Machines, operator: Operator, signer: Signer, tmp_path: Path
) -> None:
    """Cluster API's own kubeconfig is needed once, and may then be unusable for the signer."""
    tenant, admin = operator.fleet.second, operator.fleet.management.admin
    secrets = f"/api/v1/namespaces/{tenant.namespace}/secrets"
    tenant.workload.start_controllers()
    present = admin.get(f"{secrets}/{tenant.name}-kubeconfig")["data"]
    own = f"{secrets}/{tenant.name}-attestation-kubeconfig"
    given = {"value": base64.b64encode(tenant.workload.admin_config.read_bytes()).decode()}
    admin.patch(f"{secrets}/{tenant.name}-kubeconfig", {"data": given})
    try:
        call = operator.call("kubeconfig", cluster_of(tenant))
        assert (call.status, call.complaint) == (0, "")
        assert f"{tenant.name}-attestation-kubeconfig is written" in call.output
        admin.patch(f"{secrets}/{tenant.name}-kubeconfig", {"data": {"value": ""}})
        config = tmp_path / "signer.conf"
        config.write_bytes(base64.b64decode(admin.get(own)["data"]["value"]))
        review = tenant.workload.kubectl("auth", "whoami", "-o", "json", config=config)
        user = json.loads(review)["status"]["userInfo"]
        assert user["username"] == "node-attestation-signer"
        assert user["groups"] == ["attestation.cluster.x-k8s.io:signer", "system:authenticated"]
        with signer.with_policies({}):
            assert machines.registered(tenant).call().status == 0
        admin.delete(own)
    finally:
        admin.patch(f"{secrets}/{tenant.name}-kubeconfig", {"data": present})


def recorded_keys(operator: Operator) -> set[str]:
    """Return the names of all EndorsementKeys."""
    return {key["metadata"]["name"] for key in operator.fleet.management.admin.list(KEYS)}


def test_inventory_is_registered_as_a_whole_or_not_at_all(
    machines: Machines, operator: Operator, tmp_path: Path
) -> None:
    nodes = [machines.known() for _ in range(2)]
    inventory = tmp_path / "machines.csv"
    rows = [f"sha256:{key_of(n)},{n.name},{n.provider_id}" for n in nodes]
    good = "\n".join(["key,machine,providerID", *rows, ""])
    inventory.write_text(good.replace(rows[1], f"sha256:{key_of(nodes[1])},,"))
    cluster = ("--cluster", cluster_of(nodes[0].tenant))
    call = operator.call("register", "--inventory", inventory, *cluster)
    assert call.status == 2
    assert "row 3: must name a machine, a provider ID or a node" in call.complaint
    assert not recorded_keys(operator) & {key_of(n) for n in nodes}
    inventory.write_text(good)
    call = operator.call("register", "--inventory", inventory, *cluster)
    assert call.output == "2 registrations: 2 created, 0 changed, 0 unchanged\n"
    for node in nodes:
        assert node.call().status == 0


def test_pending_shows_the_command_that_lets_a_node_go_on(
    machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    script = Script(node)
    script.waiting_for("EndorsementKeyNotRegistered")

    def shown() -> Object:
        items = operator.list("pending", "--cluster", cluster_of(node.tenant))
        [request] = [item for item in items if item["request"] == script.offer]
        return request

    wait_until(lambda: shown()["reason"] != "Pending", what="the signer's reason is shown")
    request = shown()
    assert (request["kind"], request["node"], request["machine"]) == ("offer", node.name, node.name)
    assert request["endorsementKey"] == key_of(node)
    assert request["reason"] == "EndorsementKeyNotRegistered"

    def approvals() -> list[str]:
        table = operator.call("pending", "-n", node.tenant.namespace).output
        return [line for line in table.splitlines() if line.endswith(f"/{node.name}")]

    wait_until(lambda: bool(approvals()), what="the key is recorded")
    [command] = approvals()
    words = shlex.split(command)
    assert words[:3] == ["kubectl", "attestation", "approve"]
    assert operator.call(*words[2:], key_of(node), "--yes").status == 0
    script.challenge()
    of_other = operator.list("pending", "--cluster", cluster_of(operator.fleet.second))
    assert script.offer not in {item["request"] for item in of_other}


def test_nodes_show_what_has_attested_and_what_has_not(
    machines: Machines, operator: Operator
) -> None:
    joined, waiting = machines.registered(), machines.known()
    assert joined.call().status == 0
    items = {
        item["machine"]: item for item in operator.list("nodes", "-n", joined.tenant.namespace)
    }
    assert items[joined.name]["state"] == "Attested"
    assert items[joined.name]["endorsementKey"] == key_of(joined)
    assert items[waiting.name]["state"] == "NotAttested"
    assert items[waiting.name]["node"] is None
    pending = operator.list("pending", "--cluster", cluster_of(joined.tenant))
    assert joined.name not in {request["node"] for request in pending}
    table = operator.call("nodes", "--cluster", cluster_of(joined.tenant)).output
    [line] = [line for line in table.splitlines() if f" {joined.name} " in line]
    assert line.split()[4] == "Attested"
    assert line.endswith(key_of(joined)[:12])


def test_ban_needs_a_confirmation_and_is_lifted(machines: Machines, operator: Operator) -> None:
    node = machines.registered()
    assert node.call().status == 0
    name = f"{cluster_of(node.tenant)}/{node.name}"
    refused = operator.call("ban", name, "--reason", "stolen")
    assert refused.status == 1
    assert f"node {node.name} of Cluster {cluster_of(node.tenant)} holds this key" in (
        refused.complaint
    )
    assert "next step: add --yes to confirm" in refused.complaint
    assert "banned" not in spec_of(operator, node)
    assert operator.call("ban", name, "--reason", "stolen", "--yes").status == 0
    ban = spec_of(operator, node)["banned"]
    assert (ban["reason"], ban["by"]) == ("stolen", "kubernetes-admin")
    wait_until(lambda: "EndorsementKeyBanned" in renew(node), what="the node is refused")
    [item] = [i for i in operator.list("nodes") if i["machine"] == node.name]
    assert item["state"] == "Banned"
    asked = operator.call("ban", key_of(node)[:12], "--lift")
    assert (asked.status, asked.output) == (1, "")
    lifted = operator.call("ban", key_of(node)[:12], "--lift", "--yes")
    assert lifted.output.endswith(": ban lifted\n")
    wait_until(lambda: not renew(node), what="the node renews its certificate")


def test_ban_of_a_node_that_holds_no_key_is_not_lifted(operator: Operator) -> None:
    call = operator.call("ban", "team-a/workload/no-such-node", "--lift")
    assert call.status == 1
    assert "holds no endorsement key" in call.complaint


def test_release_ends_the_certificates_of_the_former_owner(
    machines: Machines, operator: Operator
) -> None:
    node = machines.registered()
    assert node.call().status == 0
    key, cluster = key_of(node), ("--cluster", cluster_of(node.tenant))
    assert operator.call("release", key, *cluster).status == 1
    assert "releasedFrom" not in spec_of(operator, node)
    assert operator.call("release", key, *cluster, "--yes").output.endswith(": released\n")
    wait_until(lambda: "EndorsementKeyReleased" in renew(node), what="the node is refused")


def test_replace_gives_the_name_to_the_new_mainboard(
    machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    assert register(operator, node, f"sha256:{key_of(node)}").status == 0
    assert node.call().status == 0
    repaired = machines.power_on(name=node.name)
    new = f"sha256:{key_of(repaired)}"
    assert operator.call("replace", key_of(node), new).status == 1
    assert key_of(repaired) not in recorded_keys(operator)
    assert operator.call("replace", key_of(node), new, "--yes").status == 0
    assert (
        "registeredFor" not in spec_of(operator, node)
        or not (spec_of(operator, node)["registeredFor"])
    )
    assert spec_of(operator, node)["banned"]["reason"] == "mainboard or TPM replaced"
    wait_until(lambda: repaired.call().status == 0, what="the repaired node joins")
    assert csrs.claim(repaired, operator.fleet.management.admin)["endorsementKey"] == (
        key_of(repaired)
    )


def test_replace_names_the_annotation_that_has_the_old_key(
    machines: Machines, operator: Operator
) -> None:
    node = machines.registered()
    assert node.call().status == 0
    new = machines.power_on(name=node.name)
    call = operator.call("replace", key_of(node), key_of(new), "--yes")
    assert call.status == 0
    assert f"Machine {node.tenant.namespace}/{node.name} still has the old key" in call.complaint


def test_explain_replays_a_live_request(machines: Machines, operator: Operator) -> None:
    node = machines.known()
    offer = Script(node)
    offer.waiting_for("EndorsementKeyNotRegistered")
    flags = ("--cluster", cluster_of(node.tenant))
    call = operator.call("explain", offer.offer, *flags)
    assert call.status == 3, call
    assert "would wait: EndorsementKeyNotRegistered" in call.output
    assert register(operator, node, f"sha256:{key_of(node)}").status == 0
    assert operator.call("explain", offer.offer, *flags).status == 0
    answer = csrs.new_name()
    assert offer.file(answer, offer.answer(answer)).keys() == {"Approved"}
    undecided = operator.call("explain", answer, *flags)
    assert undecided.status == 3
    assert "the challenge keys are needed, see --help" in undecided.output
    decided = operator.call("explain", answer, *flags, "--challenge-keys", "-o", "json")
    assert decided.status == 0
    assert decided.document["requests"][0]["verdict"] == "would be certified"
    missing = operator.call("explain", "no-such-request", *flags)
    assert missing.status == 1
    assert "does not exist in the workload cluster" in missing.complaint


def test_policy_check_lays_the_file_over_the_policies_in_force(
    operator: Operator, fleet: Fleet, tmp_path: Path
) -> None:
    """A Cluster of another policy was PolicyMissing, and a conflict with that one was not seen."""
    clusters = {cluster_of(t) for t in fleet.tenants}
    file = policy_file(tmp_path / "policy.yaml", "policy-0", mode="ServingOnly")
    [policy] = operator.list("policy", "check", file)
    assert clusters <= set(policy["clusters"])
    policy_file(file, "another", clusterRef={"namespace": "team-a", "name": "worklaod"})
    call = operator.call("policy", "check", file)
    assert (call.status, call.complaint) == (1, "")
    assert "is for no opted-in Cluster: check its selector and the opt-in" in call.output
    assert operator.call("policy", "check", file, "--offline").status == 0
    policy_file(file, "another")
    call = operator.call("policy", "check", file)
    assert call.status == 1
    assert "other policies are also for" in call.output
    assert "Cluster team-a/workload gets no certificate: PolicyConflict" in call.complaint
    policy_file(file, "another", clusterRef={"namespace": "team-a"}, mode="Enforce")
    call = operator.call("policy", "check", file)
    assert (call.status, call.output) == (2, "")
    assert "mode" in call.complaint


def state_of(operator: Operator, cluster: str) -> str:
    """Return what the signer says of a Cluster."""
    [item] = operator.list("clusters", "--cluster", cluster)
    state: str = item["state"]
    return state


def wait_until_served(operator: Operator, tenant: WorkloadTenant) -> None:
    """Wait until a signer that may just have started says that it serves a Cluster."""
    name = cluster_of(tenant)
    wait_until(lambda: state_of(operator, name) == "Served", what=f"{name} is served")


@contextmanager
def another_cluster(fleet: Fleet, kubeconfig: str) -> Iterator[str]:
    """Create an opted-in Cluster with this kubeconfig, which no API server belongs to."""
    namespace, admin = "team-x", fleet.management.admin
    fleet.management.create_namespace(namespace)
    fleet.management.create_cluster(
        namespace, "broken", endpoint="https://192.0.2.1:6443", annotations=OPT_IN
    )
    fleet.management.store_kubeconfig(namespace, "broken", kubeconfig)
    try:
        yield f"{namespace}/broken"
    finally:
        admin.delete(f"{CLUSTERS.format(namespace)}/broken")
        admin.delete(f"/api/v1/namespaces/{namespace}")


def test_kubeconfig_of_a_tenant_runs_nothing(
    operator: Operator, fleet: Fleet, tmp_path: Path
) -> None:
    """The writer of a Cluster's Secret could otherwise run a program as the operator."""
    proof = tmp_path / "ran"
    hostile = f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://192.0.2.1:6443"}}}}]
users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1,
  command: touch, args: ["{proof}"], interactiveMode: Never}}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""
    with another_cluster(fleet, hostile) as name:
        # The policies are in a file, so the Lease of the signer says what it serves.
        wait_until(
            lambda: state_of(operator, name) == "KubeconfigRefused",
            what="the Lease says that the Cluster is not served",
            seconds=120,
        )
        wait_until_served(operator, fleet.first)
        problems = operator.call("problems", "--cluster", name, "-o", "json").items
        assert ("Unserved", "KubeconfigRefused") in {(p["problem"], p["reason"]) for p in problems}
        clusters = {
            f"{item['namespace']}/{item['cluster']}": item for item in operator.list("clusters")
        }
        check = operator.call("doctor", "--cluster", name, "-o", "json")
    assert not proof.exists()
    reason = "the kubeconfig Secret is refused: the user has exec, which is not accepted"
    assert clusters[name]["apiServer"] == reason
    for tenant in fleet.tenants:
        assert clusters[cluster_of(tenant)]["optedIn"] == "yes"
        assert clusters[cluster_of(tenant)]["apiServer"] == "reachable"
    assert check.status == 1
    results = {item["check"]: item["result"] for item in check.items}
    assert results["connection"] == "problem"
    assert results["certificate authority"] == "problem"
    assert results["opt-in"] == results["CRD"] == results["signer's permissions"] == "ok"


@contextmanager
def administrators_kubeconfig(fleet: Fleet, tenant: WorkloadTenant) -> Iterator[None]:
    """Let the Secret of a Cluster hold the administrator's kubeconfig, as Cluster API writes it."""
    workload, management = tenant.workload, fleet.management
    names = (tenant.namespace, tenant.name, "kubeconfig")
    management.replace_secret(*names, {"value": workload.admin_config.read_text()})
    try:
        yield
    finally:
        management.replace_secret(*names, {"value": workload.signer_kubeconfig()})


def test_check_finds_rights_that_avoid_the_attestation(operator: Operator, fleet: Fleet) -> None:
    tenant = fleet.second
    admin = tenant.workload.admin
    flags = ("doctor", "--cluster", cluster_of(tenant))
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {
        "verbs": ["impersonate:arbitrary-node"],
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["nodes"],
    }
    wait_until_served(operator, tenant)
    with administrators_kubeconfig(fleet, tenant):
        healthy = operator.call(*flags, "-o", "json")
        assert healthy.status == 0, healthy
        others = [item for item in healthy.items if item["result"] != "ok"]
        # Certificates of the test cluster live for two days.
        expiring = ["certificate authority", "kubeconfig's certificate"]
        assert [item["check"] for item in others] == expiring
        admin.create(f"{rbac}/clusterroles", {"metadata": {"name": "debugger"}, "rules": [rule]})
        bind(tenant, "debugger", role="debugger")
        warned = operator.call(*flags, "-o", "json")
        admin.delete(f"{rbac}/clusterrolebindings/debugger")
        admin.delete(f"{rbac}/clusterroles/debugger")
    assert warned.status == 0
    [warning] = [item for item in warned.items if item["check"] == "rights"]
    assert warning["message"] == "User mallory may act as any node (constrained impersonation)"


def test_check_finds_a_binding_that_approves_without_attestation(
    operator: Operator, fleet: Fleet
) -> None:
    """Its name is not kubeadm's, so the signer may not delete it."""
    tenant = fleet.first
    role = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
    bind(tenant, "forgotten", role=role)
    try:
        call = operator.call("doctor", "--cluster", cluster_of(tenant))
    finally:
        tenant.workload.admin.delete(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/forgotten"
        )
    assert call.status == 1
    assert "forgotten approves kubelet certificates without attestation" in call.output
    assert "kubectl delete clusterrolebinding -- forgotten" in call.output


def bind(tenant: WorkloadTenant, name: str, *, role: str) -> None:
    """Bind a ClusterRole to a user."""
    tenant.workload.admin.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": role,
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}
            ],
        },
    )


def test_check_with_the_signers_kubeconfig_says_what_it_cannot_see(
    operator: Operator, fleet: Fleet
) -> None:
    wait_until_served(operator, fleet.first)
    call = operator.call("doctor", "--cluster", cluster_of(fleet.first), "-o", "json")
    assert call.status == 3, call
    [unknown] = [item for item in call.items if item["result"] == "unknown"]
    assert unknown["message"].startswith("ClusterRoles cannot be listed")


def test_check_finds_a_typing_error_in_the_opt_in(operator: Operator, fleet: Fleet) -> None:
    name = "misspelled"
    fleet.management.create_cluster(
        fleet.first.namespace,
        name,
        endpoint="https://192.0.2.1:6443",
        annotations={"attestation.cluster.x-k8s.io/client_signer": "any"},
    )
    try:
        call = operator.call("doctor", "--cluster", f"{fleet.first.namespace}/{name}", "-o", "json")
    finally:
        fleet.management.admin.delete(f"{CLUSTERS.format(fleet.first.namespace)}/{name}")
    assert call.status == 1
    [problem] = [item for item in call.items if item["result"] == "problem"]
    assert "attestation.cluster.x-k8s.io/client_signer" in problem["message"]
    assert problem["nextStep"].startswith("kubectl annotate cluster")


def test_status_counts_and_kubectl_finds_the_plugin(machines: Machines, operator: Operator) -> None:
    node = machines.registered()
    assert node.call().status == 0
    status = operator.call("status", "-n", node.tenant.namespace, "-o", "json").document
    assert status["user"] == "kubernetes-admin"
    assert all(key.isidentifier() for key in status), "names that jq can select"
    assert status["clusters"]["optedIn"] >= 1
    assert status["nodes"]["Attested"] >= 1
    assert operator.call("status", "--cluster", "team-a/none").status == 1
    kubectl = operator.fleet.management.assets / "kubectl"
    path = f"{OPERATOR.parent}:{os.defpath}"
    done = subprocess.run(
        [str(kubectl), "attestation", "status"],
        env={"PATH": path, "KUBECONFIG": str(operator.kubeconfig)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1].split() == ["user:", "kubernetes-admin"]
    cluster = cluster_of(node.tenant)
    for words, completion in (
        (("ban", "--re"), "--reason"),
        (("nodes", "--cluster", "team-a/w"), cluster),
        (("register", "-", "--cluster", cluster, "--machine", node.name[:-1]), node.name),
        (("ban", f"{cluster}/{node.name[:-1]}"), f"{cluster}/{node.name}"),
        (("ban", key_of(node)[:16]), key_of(node)),
    ):
        done = subprocess.run(
            [str(kubectl), "__complete", "attestation", *words],
            env={"PATH": path, "KUBECONFIG": str(operator.kubeconfig)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.splitlines() == [completion, ":4"]


def test_dead_signer_is_shown_with_the_time_since_when(operator: Operator, signer: Signer) -> None:
    """`status`, `clusters` and `doctor` looked the same with a signer and without one."""
    signer.wait_until_ready()
    assert operator.call("status", "-o", "json").document["signer"] == "Running"
    signer.kill()
    try:
        # Its Lease stays, and is the only trace.
        wait_until(
            lambda: operator.call("status", "-o", "json").document["signer"] == "NotRunning",
            what="the Lease of the signer is old",
        )
        status, table = operator.call("status", "-o", "json"), operator.call("clusters")
        since = f"no replica has served since {status.document['signerLastRenewal']} ("
        assert since in status.complaint
        assert since in table.complaint
        [opted_in] = [line for line in table.output.splitlines() if line.startswith("team-a")]
        assert opted_in.split()[2:4] == ["yes", "NoReplica"]
        doctor = operator.call("doctor", "--cluster", "team-a/workload", "-o", "json")
        assert doctor.status == 1
        [finding] = [item for item in doctor.items if item["check"] == "signer"]
        assert finding["message"].startswith(since)
        assert "docs/runbooks/signer-absent.md" in finding["nextStep"]
        problems = operator.call("problems", "--cluster", "team-a/workload", "-o", "json")
        assert problems.status == 1
        [row] = [item for item in problems.items if item["problem"] == "Unserved"]
        assert (row["reason"], row["nextStep"]) == ("NoReplica", finding["nextStep"])
    finally:
        signer.start()
        signer.wait_until_ready()
    assert operator.call("status", "-o", "json").document["signer"] == "Running"


def kubeconfig_with(operator: Operator, path: Path, user: object) -> Operator:
    """Return an operator whose kubeconfig has another user entry."""
    document = yaml.safe_load(operator.kubeconfig.read_text(encoding="utf-8"))
    document["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return Operator(operator.fleet, path)


def exec_user(command: Path) -> object:
    """Return a user entry with an exec plugin."""
    stanza = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(command),
        "interactiveMode": "Never",
    }
    return {"exec": stanza}


def test_kubeconfig_with_an_exec_plugin_and_files_works(
    operator: Operator, fleet: Fleet, tmp_path: Path
) -> None:
    """The signer's own parser refuses both on purpose."""
    pki = fleet.management.directory / "pki"
    files = {"client-certificate": f"{pki}/admin.crt", "client-key": f"{pki}/admin.key"}
    by_files = kubeconfig_with(operator, tmp_path / "files.conf", files)
    assert by_files.call("status").status == 0
    certificate, key = (Path(name).read_text(encoding="utf-8") for name in files.values())
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    }
    (tmp_path / "credential.json").write_text(json.dumps(credential))
    plugin = script(tmp_path / "plugin", f"cat {tmp_path / 'credential.json'}")
    by_exec = kubeconfig_with(operator, tmp_path / "exec.conf", exec_user(plugin))
    assert by_exec.call("status", "-o", "json").document["user"] == "kubernetes-admin"


def test_official_client_is_served_by_the_exec_plugin_of_a_node(machines: Machines) -> None:
    """It is the second client that runs the plugin, besides client-go."""
    node = machines.registered()
    assert connect(str(node.kubeconfig()), None).username == f"system:node:{node.name}"


def script(path: Path, line: str) -> Path:
    """Write an executable."""
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_dry_run_stores_nothing_and_is_refused_as_the_write_would_be(
    machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    call = register(operator, node, f"sha256:{key_of(node)}", "--dry-run=server")
    assert call.output == f"EndorsementKey {key_of(node)}: created (server dry run)\n"
    assert key_of(node) not in recorded_keys(operator)
    call = register(operator, node, f"sha256:{key_of(node)}", "--dry-run=server", "--as=intern")
    assert call.status == 3
    assert 'User "intern" cannot get resource "endorsementkeys"' in call.complaint


def test_watch_prints_a_node_when_it_attests(machines: Machines, operator: Operator) -> None:
    node = machines.registered()
    flags = ("nodes", "--cluster", cluster_of(node.tenant), "-o", "name", "--watch")
    with subprocess.Popen(
        [OPERATOR, *flags],
        env={"PATH": os.defpath, "KUBECONFIG": str(operator.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        try:
            assert watch.stdout is not None
            waiting = f"machine.cluster.x-k8s.io/{node.name}\n"
            assert waiting in iter(watch.stdout.readline, "")
            assert node.call().status == 0
            name = f"attestednode.attestation.cluster.x-k8s.io/{node.name}.{node.tenant.name}\n"
            assert name in iter(watch.stdout.readline, "")
            watch.send_signal(signal.SIGINT)
            assert watch.wait(60) == 130
        finally:
            watch.kill()
