"""What is ended is listed: bans, lifts and other TPMs end certificates for writes, renewals none.

The list is a ValidatingAdmissionPolicy, and the signer has the rights of workload-rbac.yaml.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from common.node_identity import attested_group
from signer.inventory.ended_certificates import POLICY_NAMES
from signer.kinds.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from tests.harness.client import ApiError, Client
from tests.harness.controlplane import ApiServer
from tests.harness.documentation import blocks, run_commands
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.harness.workload import PACKAGING
from tests.integration import csrs
from tests.integration.credentials import (
    client_of,
    is_refused,
    renewed,
    with_stolen_authority,
)
from tests.integration.operator_calls import Operator, cluster_of, key_of, register
from tests.integration.scripted_node import Script

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
FIRST = ADMISSION_POLICIES.object_path(POLICY_NAMES[0])
ROUND = 150
"""Seconds in which the signer has maintained each cluster."""


@pytest.fixture
def operator(fleet: Fleet, signer: Signer) -> Operator:  # noqa: ARG001 - it must run
    return Operator(fleet, fleet.management.admin_config)


def joined(machines: Machines) -> tuple[Node, Client]:
    """Join a node, and return it with a client that has its certificate."""
    node = machines.registered()
    assert node.call().status == 0
    return node, client_of(node)


def run(operator: Operator, *arguments: str) -> str:
    """Run a command of operators that succeeds; return its output."""
    call = operator.call(*arguments, "--yes")
    assert call.status == 0, call
    return call.output


def ban(operator: Operator, node: Node) -> None:
    """Ban the key of a node, and wait until its certificates have ended."""
    output = run(operator, "ban", key_of(node), "--reason", "stolen", "--now")
    assert "the node can no longer write with its certificates" in output


def await_refusal(client: Client, node: Node) -> None:
    wait_until(lambda: is_refused(client, node.name), what="its writes end", seconds=ROUND)


def await_acceptance(client: Client, node: Node) -> None:
    wait_until(lambda: not is_refused(client, node.name), what="it may write", seconds=ROUND)


def expressions(admin: Client) -> Iterator[str]:
    """Yield the expressions of the signer's policies."""
    for policy in admin.get(ADMISSION_POLICIES.collection_path())["items"]:
        if policy["metadata"]["name"] in POLICY_NAMES:
            yield policy["spec"]["variables"][1]["expression"]


def test_ban_ends_all_certificates_and_a_lift_none_of_them(
    machines: Machines, operator: Operator
) -> None:
    """Root keeps the first one and renews three times."""
    node, first = joined(machines)
    clients = [first]
    for _ in range(3):
        renewed(node)
        clients.append(client_of(node))
    groups = first.create(
        REVIEWS, {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    )
    assert attested_group(key_of(node), 1) in groups["status"]["userInfo"]["groups"]
    assert not any(is_refused(client, node.name) for client in clients)
    ban(operator, node)
    assert all(is_refused(client, node.name) for client in clients)
    assert first.get("/api/v1/services")["kind"] == "ServiceList", "reads go on"
    run(operator, "ban", key_of(node), "--lift")
    wait_until(lambda: renewed_or_none(node), what="the node renews", seconds=ROUND)
    next_one = client_of(node)
    await_acceptance(next_one, node)
    assert all(is_refused(client, node.name) for client in clients)
    renewed(node)
    assert not is_refused(client_of(node), node.name)
    assert not is_refused(next_one, node.name), "a renewal ends nothing"


def renewed_or_none(node: Node) -> bool:
    """Renew the certificate of a node; return whether that was possible."""
    return node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


def test_false_alarm_gives_the_certificates_back(machines: Machines, operator: Operator) -> None:
    node, client = joined(machines)
    ban(operator, node)
    assert is_refused(client, node.name)
    run(operator, "ban", key_of(node), "--lift", "--certificates-too")
    await_acceptance(client, node)


def test_certificate_of_a_stolen_authority_can_still_file_requests(
    machines: Machines, operator: Operator
) -> None:
    """The signer judges those, and raises its alarm; a lifted node needs them, too."""
    node, _ = joined(machines)
    thief = with_stolen_authority(node)
    run(operator, "ban", key_of(node), "--reason", "stolen", "--now")
    run(operator, "ban", key_of(node), "--lift")
    assert is_refused(thief, node.name)
    Script(node, client=thief).challenge()


def test_other_tpm_ends_the_certificates_of_the_former_one(
    machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    assert register(operator, node, f"sha256:{key_of(node)}").status == 0
    assert node.call().status == 0
    old = client_of(node)
    repaired = machines.power_on(name=node.name)
    run(operator, "replace", key_of(node), f"sha256:{key_of(repaired)}", "--now")
    assert is_refused(old, node.name)
    wait_until(lambda: repaired.call().status == 0, what="the repaired node joins")
    new = client_of(repaired)
    await_acceptance(new, repaired)
    for _ in range(10):
        renewed(repaired)
        assert not is_refused(client_of(repaired), node.name)
    assert not is_refused(new, node.name)
    assert is_refused(old, node.name)


def test_node_without_an_entry_is_not_restricted(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    """A control plane node has a certificate from kubeadm until its first renewal."""
    node, _ = joined(machines)
    ban(operator, node)
    kubeadm = fleet.first.workload.client("system:node:never-attested", "system:nodes")
    assert not is_refused(kubeadm, "never-attested")


def test_policy_that_was_deleted_or_changed_is_written_again(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    node, client = joined(machines)
    ban(operator, node)
    admin = fleet.first.workload.admin
    admin.delete(FIRST)
    await_acceptance(client, node)
    await_refusal(client, node)
    admin.delete(FIRST.replace(ADMISSION_POLICIES.plural, ADMISSION_POLICY_BINDINGS.plural))
    await_acceptance(client, node)
    await_refusal(client, node)


def test_optional_policy_refuses_nodes_that_have_not_attested(
    fleet: Fleet, machines: Machines, operator: Operator, tmp_path: Path
) -> None:
    node, attested = joined(machines)
    workload = fleet.first.workload
    unattested = workload.client(f"system:node:{node.name}", "system:nodes")
    assert not is_refused(unattested, node.name)
    workload.admin.create("/api/v1/nodes", {"metadata": {"name": "unattested"}})
    listed = operator.call("doctor").output
    assert "attested-nodes-policy.yaml would refuse the writes of" in listed
    [block] = [b for b in blocks() if "attested-nodes-policy.yaml" in b.text]
    shutil.copy(workload.admin_config, tmp_path / "workload.conf")
    (tmp_path / "packaging").symlink_to(PACKAGING.parent)
    environment = {"PATH": f"{fleet.management.assets}:{os.defpath}"}
    run_commands(block.script, tmp_path, environment)
    try:
        wait_until(
            lambda: is_refused(unattested, node.name, "only nodes that have attested may write"),
            what="the policy is in force",
        )
        assert not is_refused(attested, node.name)
        Script(node, client=unattested).challenge()
    finally:
        workload.kubectl("delete", "-f", str(PACKAGING / "attested-nodes-policy.yaml"))
        workload.admin.delete("/api/v1/nodes/unattested")


@pytest.mark.parametrize("restored", ["management", "workload", "both"])
def test_ban_outlives_a_restore(
    fleet: Fleet, machines: Machines, operator: Operator, restored: str
) -> None:
    """After a restore of both clusters, the operator bans the key again."""
    (node, client), (good, of_good) = joined(machines), joined(machines)
    clusters: list[ApiServer] = [fleet.management] if restored in {"management", "both"} else []
    clusters += [fleet.first.workload] if restored in {"workload", "both"} else []
    for cluster in clusters:
        cluster.back_up()
    ban(operator, node)
    renewed(good)
    for cluster in clusters:
        cluster.restore()
    if restored == "both":
        run(operator, "ban", key_of(node), "--reason", "stolen")
    await_refusal(client, node)
    for each in (of_good, client_of(good)):
        assert not is_refused(each, good.name)
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert call.status != 0, "the list knows the ban"
    run(operator, "ban", key_of(node), "--lift")
    wait_until(lambda: renewed_or_none(node), what="the node renews", seconds=ROUND)
    await_acceptance(client_of(node), node)
    assert is_refused(client, node.name)


def test_lift_that_a_backup_lacks_is_repeated(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    node, client = joined(machines)
    ban(operator, node)
    fleet.management.back_up()
    run(operator, "ban", key_of(node), "--lift")
    wait_until(lambda: renewed_or_none(node), what="the node renews", seconds=ROUND)
    second = client_of(node)
    await_acceptance(second, node)
    fleet.management.restore()
    await_refusal(second, node)
    run(operator, "ban", key_of(node), "--lift")
    wait_until(lambda: renewed_or_none(node), what="the node renews", seconds=ROUND)
    await_acceptance(client_of(node), node)
    assert is_refused(client, node.name)
    assert is_refused(second, node.name), "what was ended stays ended"


def test_ban_of_a_node_whose_claim_is_lost_names_the_node(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    node, client = joined(machines)
    admin, key = fleet.management.admin, key_of(node)
    path = f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{node.name}.{node.tenant.name}"
    admin.delete(path)
    admin.delete(f"{csrs.ENDORSEMENT_KEYS}/{key}")
    call = operator.call("ban", key, "--reason", "stolen", "--yes")
    assert "the ban ends no certificate" in call.complaint
    assert not is_refused(client, node.name)
    name = f"{cluster_of(node.tenant)}/{node.name}"
    run(operator, "ban", key, "--reason", "stolen", "--node", name, "--now")
    assert is_refused(client, node.name)


def test_policies_hold_more_entries_than_one_can(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    """Each of 1,200 banned keys is held by a node."""
    node, client = joined(machines)
    cluster, management = node.tenant, fleet.management.admin
    admin = cluster.workload.admin
    keys = [f"{number:064x}" for number in range(1, 1201)]
    for number, name in enumerate(keys):
        holder = {
            "clusterNamespace": cluster.namespace,
            "clusterName": cluster.name,
            "nodeName": f"gone-{number}.example.org",
            "providerID": f"test://gone-{number}",
            "basis": "Registered",
            "since": "2026-11-22T00:00:00Z",
        }
        body = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "EndorsementKey",
            "metadata": {"name": name},
            "spec": {"heldBy": holder, "banned": {"reason": "test"}},
        }
        management.create(csrs.ENDORSEMENT_KEYS, body)
    try:
        wait_until(
            lambda: "".join(expressions(admin)).count("gone-") == len(keys),
            what="all are listed",
            seconds=3 * ROUND,
        )
        assert len(list(expressions(admin))) == 2
        gone = cluster.workload.client("system:node:gone-1199.example.org", "system:nodes")
        wait_until(lambda: is_refused(gone, "gone-1199.example.org"), what="the last one ends")
        ban(operator, node)
        assert is_refused(client, node.name)
    finally:
        for name in keys:
            management.delete(f"{csrs.ENDORSEMENT_KEYS}/{name}")
        for name in POLICY_NAMES:
            for kind in (ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS):
                with suppress(ApiError):
                    admin.delete(kind.object_path(name))
