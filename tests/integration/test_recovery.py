"""What operators lose and restore: docs/operate/recovery.md."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness.api_relay import relay
from tests.harness.client import Client
from tests.harness.documentation import blocks, run_commands
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.credentials import joined, renewed
from tests.integration.machine_events import condition, wait_for_condition
from tests.integration.relays import PATIENCE
from tests.integration.scripted_node import Script

PAGE = "docs/operate/recovery.md"
CHALLENGE_KEYS = f"/api/v1/namespaces/{NAMESPACE}/secrets/node-attestation-challenge-keys"


def run_block(fleet: Fleet, directory: Path, command: str) -> None:
    """Run the commands of docs/operate/recovery.md with this text, as an operator."""
    [block] = [
        block
        for block in blocks()
        if block.page == PAGE and block.marker == "run" and command in block.text
    ]
    environment = {
        "PATH": f"{fleet.management.assets}:{os.defpath}",
        "KUBECONFIG": str(fleet.management.admin_config),
    }
    run_commands(block.script, directory, environment)


def lose_claim(node: Node, management: Client) -> None:
    """Delete both objects of the claim."""
    key = csrs.claim(node, management)["endorsementKey"]
    management.delete(f"{csrs.ENDORSEMENT_KEYS}/{key}")
    name = f"{node.name}.{node.tenant.name}"
    management.delete(f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{name}")


def as_node(node: Node) -> Client:
    """Return a client with a certificate of the node."""
    return node.tenant.workload.client(f"system:node:{node.name}", "system:nodes")


def test_node_without_a_record_waits_until_its_claim_is_restored(
    fleet: Fleet, machines: Machines, signer: Signer, tmp_path: Path
) -> None:
    """Without the claim, the signer cannot know which TPM the Machine had."""
    with signer.with_policies({"endorsementKey": {"trust": "FirstUse"}}):
        node, management = machines.known(), fleet.management.admin
        assert node.call().status == 0
        claimed = csrs.claim(node, management)
        run_block(fleet, tmp_path, "kubectl get endorsementkeys -o yaml")
        lose_claim(node, management)
        Script(node, client=as_node(node)).waiting_for("OperatorActionRequired")
        run_block(fleet, tmp_path, "kubectl apply --server-side")
        assert csrs.claim(node, management) == claimed
        second = renewed(node)
        assert csrs.claim(node, management)["credentialIDs"] == [
            *claimed["credentialIDs"],
            second,
        ]


def test_lost_challenge_keys_interrupt_exchanges_and_no_more(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """The answer to an earlier challenge is ignored. The next exchange has the new key."""
    node, first = joined(machines)
    script, name = Script(node, client=as_node(node)), csrs.new_name()
    answer = script.encoded(name)
    signer.stop()
    fleet.management.admin.delete(CHALLENGE_KEYS)
    signer.start()
    signer.wait_until_ready()
    script.put(name, answer)
    second = renewed(node)
    assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [first, second]
    assert csrs.conditions(script.client, name) == {}


@contextmanager
def without_authority_key(fleet: Fleet, tenant: WorkloadTenant, signer: Signer) -> Iterator[None]:
    """Remove the key from the Secret with the authority of a Cluster, and restore it.

    The signer is restarted, since it reads the Secret again only after some seconds.
    """
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-ca"
    admin = fleet.management.admin
    stored = admin.get(path)["data"]
    signer.stop()
    admin.patch(path, {"data": {"tls.key": None}})
    signer.start()
    try:
        yield
    finally:
        admin.patch(path, {"data": stored})


def test_requests_wait_until_a_lost_authority_key_is_restored(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """The certificate of the node stays in use, and no request is denied."""
    node, _ = joined(machines)
    with without_authority_key(fleet, node.tenant, signer):
        script, name = Script(node, client=as_node(node)), csrs.new_name()
        script.put(name, script.encoded(name))
        csrs.waiting_for(script.client, name, "AuthorityUnavailable")
        assert node.call().status == 0
    assert csrs.decided(script.client, name) == {"Approved": "Attested"}


def test_nodes_join_after_etcd_of_their_cluster_was_restored(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """Watches from before are at a version that the API server has not reached again."""
    workload = fleet.first.workload
    workload.back_up()
    for number in range(500):
        metadata = {"name": f"lost-{number}"}
        workload.admin.create("/api/v1/namespaces/default/configmaps", {"metadata": metadata})
    assert machines.registered().call().status == 0, "the signer has seen the later state"
    workload.restore()
    assert machines.registered(settings=PATIENCE).call().status == 0
    assert "API server went back to an earlier state" in [line["event"] for line in signer.lines]


def test_restored_management_cluster_whose_versions_have_passed_is_listed_again(
    fleet: Fleet, machines: Machines, signer: Signer, tmp_path: Path
) -> None:
    """A node got a certificate for its Machine, which the restore had taken away.

    A watch went on from a version that the restored API server has reached by other writes.
    """
    management = fleet.management
    signer.stop()
    try:
        with relay(management, tmp_path / "relay") as between:
            kubeconfig = management.signer_kubeconfig().replace(management.url, between.url)
            management.back_up()
            with Signer(fleet, tmp_path / "signer", kubeconfig=kubeconfig) as through:
                through.wait_until_ready()
                script, name = Script(machines.registered()), csrs.new_name()
                answer = script.encoded(name)
                reached = latest_version(management.admin)
                between.away = True
                between.cut()
                management.restore()
                assert latest_version(management.admin) < reached, "the Machine is gone"
                pass_version(management.admin, reached)
                script.put(name, answer)
                between.away = False
                csrs.waiting_for(script.client, name, "MachineNotFound")
                assert csrs.certificate(script.client, name) == b""
                events = [line["event"] for line in through.lines]
                assert "management cluster is listed again" in events
                assert "API server went back to an earlier state" not in events
                assert machines.registered(settings=PATIENCE).call().status == 0
    finally:
        signer.start()


KUBE_SYSTEM = "/api/v1/namespaces/kube-system/configmaps"


def wait_for_marker(node: Node, management: Client) -> None:
    """Wait until the claim of the node that attested last is marked down in its own cluster."""
    newest, workload = csrs.claim(node, management)["lastAttested"], node.tenant.workload.admin
    wait_until(
        lambda: any(
            found["data"]["lastAttested"] == newest
            for found in workload.list(KUBE_SYSTEM)
            if found["metadata"]["name"] == "node-attestation-marker"
        ),
        what="the marker shows the newest claim",
        seconds=150,
    )


def let_renewal_be_overdue(node: Node, management: Client) -> None:
    name = f"{node.name}.{node.tenant.name}"
    path = f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{name}"
    management.patch(path, {"spec": {"renewalDeadline": "2026-01-01T00:00:00Z"}})


def test_node_is_not_overdue_because_its_newest_claim_was_lost(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """A restore made healthy nodes overdue, and a MachineHealthCheck deleted their Machines."""
    management = fleet.management.admin
    nodes = [machines.registered() for _ in range(3)]
    for node in nodes:
        assert node.call().status == 0
    renewing, waiting, overdue = nodes
    let_renewal_be_overdue(overdue, management)
    wait_for_condition(fleet, overdue, "False", "RenewalOverdue")
    signer.stop()
    fleet.management.back_up()
    signer.start()
    signer.wait_until_ready()
    renewed(waiting)
    renewed(renewing)
    wait_for_marker(renewing, management)
    signer.stop()
    fleet.management.restore()
    signer.start()
    signer.wait_until_ready()
    let_renewal_be_overdue(waiting, management)
    wait_for_condition(fleet, waiting, "Unknown", "ClaimsOutOfDate")
    wait_for_condition(fleet, overdue, "Unknown", "ClaimsOutOfDate")
    renewed(renewing)
    wait_for_marker(renewing, management)
    assert condition(fleet, waiting)["status"] == "Unknown", "its newest claim is still lost"
    renewed(waiting)
    wait_for_condition(fleet, waiting, "True", "Attested")


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def latest_version(admin: Client) -> int:
    """Return the present resource version of an API server."""
    return int(admin.get(f"{CONFIG_MAPS}?limit=1")["metadata"]["resourceVersion"])


def pass_version(admin: Client, version: int) -> None:
    """Write objects until a resource version is the past."""
    number = 0
    while latest_version(admin) <= version:
        admin.create(CONFIG_MAPS, {"metadata": {"name": f"passing-{number}"}})
        number += 1
