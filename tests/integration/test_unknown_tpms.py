"""Unknown TPMs on real API servers: recorded, approved, and never replaced by another."""

import base64
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.client import ApiError
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

MANIFEST = Path(__file__).parents[2] / "packaging/signer/manifests/install.yaml"
REQUESTS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{}/endorsementkeyrequests"


@pytest.fixture
def operator(fleet: Fleet) -> Operator:
    """Return an administrator of the management cluster."""
    return Operator(fleet, fleet.management.admin_config)


def key_of(node: Node) -> str:
    """Return the digest of a node's endorsement key."""
    [digest] = node.registration().values()
    return digest.removeprefix("sha256:")


def offered_keys(machines: Machines, node: Node) -> list[dict[str, Any]]:
    """Return the keys that were offered for a node's Machine."""
    admin = machines.fleet.management.admin
    for request in admin.list(REQUESTS.format(node.tenant.namespace)):
        if request["metadata"]["name"] == node.name:
            keys: list[dict[str, Any]] = request["spec"]["keys"]
            return keys
    return []


def wait_for_keys(machines: Machines, node: Node, *names: str) -> None:
    """Wait until exactly these keys are recorded, in this order."""
    wait_until(
        lambda: [key["sha256"] for key in offered_keys(machines, node)] == list(names),
        what=f"{len(names)} keys are recorded for {node.name}",
    )


def same_machine_with_another_tpm(machines: Machines, node: Node) -> Node:
    """Return what a thief of a bootstrap token has: another TPM, and the victim's names."""
    thief = machines.power_on(node.tenant, node.name)
    assert thief.provider_id == node.provider_id
    return thief


def test_approved_node_joins(machines: Machines, operator: Operator) -> None:
    node = machines.known()
    script = Script(node)
    wait_for_keys(machines, node, key_of(node))
    [key] = offered_keys(machines, node)
    assert key["nodeName"] == node.name
    assert key["requester"].startswith("system:bootstrap:")
    table = operator.call("pending", "--cluster", cluster_of(node.tenant)).output
    [command] = [line for line in table.splitlines() if line.endswith(f"/{node.name}")]
    words = shlex.split(command)
    assert words[:3] == ["kubectl", "attestation", "approve"]
    asked = operator.call(*words[2:])
    assert (asked.status, asked.output) == (1, "")
    assert f"endorsement key: {key_of(node)}" in asked.complaint
    assert (
        "next step: add the key that the machine or its vendor gives and --yes" in asked.complaint
    )
    assert operator.call(*words[2:], "--yes").status == 2
    done = operator.call(*words[2:], key_of(node), "--yes")
    place = f"{node.tenant.namespace}/{node.name}"
    assert (done.status, done.output) == (
        0,
        f"EndorsementKey {key_of(node)}: created, registered for {place}\n",
    )
    script.challenge()
    assert node.call().status == 0
    wait_for_keys(machines, node)


def user_with_role(fleet: Fleet, role: str, directory: Path) -> Operator:
    """Return a user who has one role of the installation, and no other right."""
    name = f"node-attestation-signer-{role}"
    [body] = [
        each
        for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
        if each and each["metadata"]["name"] == name
    ]
    documents = yaml.safe_dump_all([body, binding_of(name, role)])
    fleet.management.kubectl("apply", "-f", "-", stdin=documents)
    pair = fleet.management.client_authority.client(role)
    config = yaml.safe_load(fleet.management.admin_config.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    file = directory / f"{role}.conf"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Operator(fleet, file)


def test_role_of_the_installation_is_enough_to_approve(machines: Machines, tmp_path: Path) -> None:
    """Without an administrator's rights, `approve` works."""
    approver = user_with_role(machines.fleet, "approver", tmp_path)
    node = machines.known()
    Script(node)
    wait_for_keys(machines, node, key_of(node))
    machine = f"{node.tenant.namespace}/{node.name}"
    done = approver.call("approve", machine, key_of(node), "--yes")
    assert done.status == 0, done
    assert done.output.endswith(f"registered for {node.tenant.namespace}/{node.name}\n")


@pytest.mark.parametrize("command", ["status", "nodes", "problems"])
def test_role_of_a_reader_is_enough_to_read(command: str, fleet: Fleet, tmp_path: Path) -> None:
    """`status` and `problems` could not tell a reader whether the signer runs."""
    reader = user_with_role(fleet, "reader", tmp_path)
    call = reader.call(command, "-o", "json")
    assert call.status != 3, call
    assert "forbidden" not in call.output + call.complaint


def binding_of(role: str, user: str) -> dict[str, Any]:
    """Return a ClusterRoleBinding of a role to a user."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def test_second_key_is_a_conflict_that_an_operator_decides(
    machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    thief = same_machine_with_another_tpm(machines, node)
    Script(thief)
    wait_for_keys(machines, node, key_of(thief))
    script = Script(node)
    wait_for_keys(machines, node, key_of(thief), key_of(node))
    refused = operator.call("approve", node.name, "--yes")
    assert (refused.status, refused.output) == (1, "")
    assert "2 different keys were offered" in refused.complaint
    assert operator.call("approve", node.name, key_of(node)[:12], "--yes").status == 2
    unknown = [
        key
        for key in operator.call("pending", "-o", "json").document["unknownKeys"]
        if key["machine"] == node.name
    ]
    assert [key["conflict"] for key in unknown] == [True, True]
    assert operator.call("approve", node.name, key_of(node), "--yes").status == 0
    script.challenge()
    stranger = thief.call()
    assert stranger.status != 0
    assert "EndorsementKeyMismatch" in stranger.complaint


def test_request_ends_with_its_machine(machines: Machines, operator: Operator) -> None:
    node = machines.known()
    Script(node)
    wait_for_keys(machines, node, key_of(node))
    machines.forget(node)
    wait_for_keys(machines, node)
    call = operator.call("approve", node.name, "--yes")
    assert call.status == 1
    assert "no unknown TPM was recorded" in call.complaint


def test_key_of_another_node_is_not_approved(machines: Machines, operator: Operator) -> None:
    """The public key of a node is no secret, and an offer can name it."""
    joined, node = machines.registered(), machines.known()
    assert joined.call().status == 0
    thief = machines.power_on(node.tenant, node.name, tpm=joined.tpm)
    Script(thief)
    wait_for_keys(machines, node, key_of(joined))
    call = operator.call("approve", node.name, "--yes")
    assert (call.status, call.output) == (1, "")
    assert f"node {joined.name} of Cluster {cluster_of(node.tenant)} holds" in call.complaint


@pytest.mark.parametrize(
    "change", [{"keys": []}, {"machineUID": "other"}, {"clusterName": "other"}]
)
def test_api_server_refuses_to_replace_what_was_recorded(
    machines: Machines, change: dict[str, Any]
) -> None:
    node = machines.known()
    Script(node)
    wait_for_keys(machines, node, key_of(node))
    keys = [{**offered_keys(machines, node)[0], "sha256": "ab" * 32}]
    admin = machines.fleet.management.admin
    path = f"{REQUESTS.format(node.tenant.namespace)}/{node.name}"
    with pytest.raises(ApiError, match=r"^422 .*must"):
        admin.patch(path, {"spec": {"keys": keys} if "keys" in change else change})
    admin.patch(path, {"spec": {"keys": [*offered_keys(machines, node), *keys]}})
