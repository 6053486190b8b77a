"""A ValidatingAdmissionPolicy ends certificates for writes (packaging/signer/credential-policy)."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness import clocks
from tests.harness.client import Client
from tests.harness.documentation import blocks, run_commands
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node, finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING
from tests.integration import csrs
from tests.integration.credentials import (
    ban,
    client_of,
    is_refused,
    renewed,
    with_stolen_authority,
)
from tests.integration.operator_calls import Operator, cluster_of, key_of, register
from tests.integration.relays import PATIENCE
from tests.integration.scripted_node import Script

POLICY = str(PACKAGING / "credential-policy.yaml")
CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/node-attestation-credentials"


@pytest.fixture(scope="module")
def strict(fleet: Fleet, signer: Signer) -> Iterator[None]:
    """Apply the policy in the first workload cluster, and let the signer keep its list."""
    workload = fleet.first.workload
    workload.kubectl("apply", "--server-side", "-f", POLICY)
    probe = workload.client("system:node:probe", "system:nodes")
    workload.admin.patch(CONFIG_MAP, {"data": {"probe": ""}})
    wait_until(lambda: is_refused(probe, "probe"), what="the API server applies the policy")
    published = of_cluster(fleet.first, renewals={"publishCredentials": True})
    with signer.with_policies(published, of_cluster(fleet.second)):
        yield
    workload.kubectl("delete", "-f", POLICY)


def joined(machines: Machines, settings: Mapping[str, object] | None = None) -> tuple[Node, Client]:
    """Join a node, and return it with a client that has its certificate."""
    node = machines.registered(settings=settings)
    assert node.call().status == 0
    return node, client_of(node)


@pytest.mark.usefixtures("strict")
def test_renewal_ends_older_certificates_for_writes(machines: Machines) -> None:
    node, first = joined(machines)
    assert not is_refused(first, node.name)
    renewed(node)
    second = client_of(node)
    assert not is_refused(second, node.name)
    assert not is_refused(first, node.name), "the kubelet may not have the new one yet"
    renewed(node)
    wait_until(lambda: is_refused(first, node.name), what="the first certificate ends")
    assert not is_refused(second, node.name)
    assert not is_refused(client_of(node), node.name)


@pytest.mark.usefixtures("strict")
def test_certificate_of_a_stolen_authority_cannot_write(machines: Machines) -> None:
    """It can read, and file requests to the signer, which raises the alarm."""
    node, _ = joined(machines)
    thief = with_stolen_authority(node)
    wait_until(lambda: is_refused(thief, node.name), what="the API server has the list")
    assert thief.get("/api/v1/services")["kind"] == "ServiceList"
    Script(node, client=thief).challenge()


@pytest.mark.usefixtures("strict")
@pytest.mark.parametrize("has_lease", [False, True])
def test_node_whose_writes_are_refused_recovers_by_itself(
    machines: Machines, signer: Signer, *, has_lease: bool
) -> None:
    """As after a restore: the list has another certificate. The kubelet gets a 403, and no 401."""
    node, client = joined(machines, PATIENCE)
    if has_lease:
        assert not is_refused(client, node.name)
    recover = ("renew", "--if-refused", "--kubeconfig", str(node.kubeconfig()))
    node.environment = clocks.shifted(31 * 60)
    accepted = node.call(*recover)
    assert (accepted.status, accepted.complaint) == (1, "")
    signer.stop()  # else it corrects the list
    try:
        workload = node.tenant.workload
        workload.admin.patch(CONFIG_MAP, {"data": {node.name: "X509SHA256=another"}})
        wait_until(lambda: is_refused(client, node.name), what="the API server has the list")
        node.environment = {}
        young = node.call(*recover)
        assert (young.status, young.output) == (1, "the certificate was not replaced\n")
        node.environment = clocks.shifted(31 * 60)
        recovering = node.start(*recover)
        wait_until(lambda: len(csrs.offers(node)) == 2, what="the node requests another one")
    finally:
        signer.start()
        signer.wait_until_ready()
    recovered = finished(recovering)
    assert recovered.status == 0, recovered.complaint
    node.environment = {}
    assert not is_refused(client_of(node), node.name)


@pytest.mark.usefixtures("strict")
def test_ban_ends_the_certificate_for_writes(fleet: Fleet, machines: Machines) -> None:
    """Within a round of maintenance."""
    node, client = joined(machines)
    assert not is_refused(client, node.name)
    ban(node, fleet.management.admin)
    wait_until(lambda: is_refused(client, node.name), what="the ban ends it", seconds=120)


def alarms(signer: Signer, reason: str) -> list[dict[str, Any]]:
    """Return the lines of the signer's log with an alarm of this reason."""
    return [line for line in signer.lines if line.get("reason") == reason and line["alarm"]]


@pytest.mark.usefixtures("strict")
def test_restore_of_the_management_cluster_ends_no_certificate_but_those_of_a_ban(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """Each node that had renewed since the backup lost its right to write."""
    management = fleet.management
    (node, first), (other, _) = joined(machines), joined(machines)
    management.back_up()
    for each in (node, node, other, other):
        renewed(each)
    present, of_other = client_of(node), client_of(other)
    wait_until(lambda: is_refused(first, node.name), what="the certificate of the backup ends")
    management.restore()
    wait_until(
        lambda: any(node.name in line["detail"] for line in alarms(signer, "ClaimsOutOfDate")),
        what="the signer compares the list with the restored claims",
        seconds=180,
    )
    ban(other, management.admin)
    wait_until(lambda: is_refused(of_other, other.name), what="the ban ends it", seconds=120)
    assert not is_refused(present, node.name)
    assert is_refused(first, node.name)
    held = csrs.claim(node, management.admin)["credentialIDs"]
    after = renewed(node)
    assert not is_refused(present, node.name), "the kubelet may not have the new one yet"
    assert not is_refused(client_of(node), node.name)
    listed, last = csrs.claim(node, management.admin)["credentialIDs"]
    assert (listed not in held, last) == (True, after)
    unknown = alarms(signer, "RequesterCredentialUnknown")
    assert [line for line in unknown if line["node"] == node.name] == []


@pytest.mark.usefixtures("strict")
def test_ban_now_waits_until_the_certificate_has_ended(fleet: Fleet, machines: Machines) -> None:
    node, client = joined(machines)
    name = f"{cluster_of(node.tenant)}/{node.name}"
    operator = Operator(fleet, fleet.management.admin_config)
    call = operator.call("ban", name, "--reason", "stolen", "--now", "--yes")
    assert call.status == 0, call.complaint
    assert "the node can no longer write with its certificates" in call.output
    wait_until(lambda: is_refused(client, node.name), what="the API server has the list")


@pytest.mark.usefixtures("strict")
def test_ban_now_says_why_a_certificate_does_not_end(fleet: Fleet, machines: Machines) -> None:
    """The second workload cluster does not have the admission policy."""
    node = machines.registered(fleet.second)
    assert node.call().status == 0
    name = f"{cluster_of(node.tenant)}/{node.name}"
    operator = Operator(fleet, fleet.management.admin_config)
    asked = operator.call("ban", name, "--reason", "stolen", "--now")
    assert asked.status == 1, "not confirmed"
    warning, _, question = asked.complaint.partition("EndorsementKey ")
    assert "--now will not end certificates: the admission policy is not installed" in warning
    assert "stays valid until" in question
    call = operator.call("ban", name, "--reason", "stolen", "--now", "--yes")
    assert call.status == 3
    assert call.output.endswith(": banned\n")
    assert "did not end: the admission policy is not installed" in call.complaint


@pytest.mark.usefixtures("strict")
def test_replace_now_ends_the_certificate_of_the_old_tpm_only(
    fleet: Fleet, machines: Machines
) -> None:
    node = machines.known()
    operator = Operator(fleet, fleet.management.admin_config)
    assert register(operator, node, f"sha256:{key_of(node)}").status == 0
    assert node.call().status == 0
    old = client_of(node)
    assert not is_refused(old, node.name)
    repaired = machines.power_on(name=node.name)
    call = operator.call("replace", key_of(node), f"sha256:{key_of(repaired)}", "--now", "--yes")
    assert call.status == 0, call.complaint
    assert f"is replaced by {key_of(repaired)}\n" in call.output
    assert "the node can no longer write with its certificates" in call.output
    wait_until(lambda: is_refused(old, node.name), what="the API server has the list")
    wait_until(lambda: repaired.call().status == 0, what="the repaired node joins")
    new = client_of(repaired)
    wait_until(lambda: not is_refused(new, node.name), what="the repaired node can write")
    assert is_refused(old, node.name)


@pytest.mark.usefixtures("strict")
def test_node_that_never_attested_is_not_restricted(fleet: Fleet) -> None:
    """A control plane node has a certificate from kubeadm until its first renewal."""
    name = "never-attested"
    kubeadm = fleet.first.workload.client(f"system:node:{name}", "system:nodes")
    assert not is_refused(kubeadm, name)


def end_by_hand(fleet: Fleet, node: Node, directory: Path) -> None:
    """Run the command of docs/operate/recovery.md, as an operator."""
    [block] = [b for b in blocks() if "patch configmap node-attestation-credentials" in b.text]
    shutil.copy(node.tenant.workload.admin_config, directory / "workload.conf")
    environment = {"PATH": f"{fleet.management.assets}:{os.defpath}", "NODE": node.name}
    run_commands(block.script, directory, environment)


@pytest.mark.usefixtures("strict")
def test_operator_ends_the_certificates_of_a_node_without_a_claim(
    fleet: Fleet, machines: Machines, signer: Signer, tmp_path: Path
) -> None:
    """The backup lacks the claim, so that a ban of its key does not reach the list."""
    node, client = joined(machines)
    workload, management = node.tenant.workload.admin, fleet.management.admin
    workload.create("/api/v1/nodes", {"metadata": {"name": node.name}})
    path = f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{node.name}.{node.tenant.name}"
    management.delete(path)
    wait_until(
        lambda: any(node.name in line["detail"] for line in alarms(signer, "ClaimsOutOfDate")),
        what="the signer misses the claim",
        seconds=120,
    )
    assert not is_refused(client, node.name)
    end_by_hand(fleet, node, tmp_path)
    wait_until(lambda: is_refused(client, node.name), what="the entry ends it")
    workload.delete(f"/api/v1/nodes/{node.name}")
    wait_until(
        lambda: node.name not in workload.get(CONFIG_MAP).get("data", {}),
        what="maintenance removes the entry of a node that is gone",
        seconds=120,
    )


@pytest.fixture
def full_list(fleet: Fleet) -> Iterator[Callable[[], object]]:
    """Return a function that fills the list with nodes that are gone.

    Each round of maintenance removes a hundred of them.
    """
    admin = fleet.first.workload.admin
    text = f"1764000000 {'0' * 32} {'f' * 32}"
    texts = {f"gone-{number}": text for number in range(int(0.99 * 2**20 / len(text)))}
    yield lambda: admin.patch(CONFIG_MAP, {"data": texts})
    present = admin.get(CONFIG_MAP)["data"]
    admin.patch(CONFIG_MAP, {"data": dict.fromkeys(texts.keys() & present.keys())})


@pytest.mark.usefixtures("strict")
def test_list_without_space_stops_no_renewal_and_no_ban(
    fleet: Fleet, machines: Machines, signer: Signer, full_list: Callable[[], object]
) -> None:
    """With 6,944 nodes, the API server refused each write, and no node got a certificate."""
    listed, _ = joined(machines)
    renewed(listed)
    ended = client_of(listed)
    full_list()
    unlisted, client = joined(machines)
    renewed(listed)
    renewed(listed)
    entries = fleet.first.workload.admin.get(CONFIG_MAP)["data"]
    assert sum(map(len, entries.values())) > 0.95 * 2**20
    assert listed.name in entries
    assert unlisted.name not in entries
    assert not is_refused(client, unlisted.name)
    assert not is_refused(client_of(listed), listed.name)
    wait_until(lambda: is_refused(ended, listed.name), what="the renewals end it")
    assert [line["node"] for line in alarms(signer, "CredentialListFull") if "node" in line] == [
        unlisted.name
    ]
    ban(unlisted, fleet.management.admin)
    wait_until(lambda: is_refused(client, unlisted.name), what="the ban ends it", seconds=120)
