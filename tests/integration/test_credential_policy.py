"""A ValidatingAdmissionPolicy ends certificates for writes (packaging/signer/credential-policy)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING
from tests.integration import csrs
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.scripted_node import Script
from tests.integration.test_credential_ids import renewed, with_stolen_authority
from tests.integration.test_operator_commands import key_of, register

POLICY = str(PACKAGING / "credential-policy.yaml")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture(scope="module")
def strict(fleet: Fleet, signer: Signer) -> Iterator[None]:
    """Apply the policy in the first workload cluster, and let the signer keep its list."""
    workload = fleet.first.workload
    workload.kubectl("apply", "--server-side", "-f", POLICY)
    probe = workload.client("system:node:probe", "system:nodes")
    config_map = "/api/v1/namespaces/kube-system/configmaps/node-attestation-credentials"
    workload.admin.patch(config_map, {"data": {"probe": ""}})
    wait_until(lambda: is_refused(probe, "probe"), what="the API server applies the policy")
    published = of_cluster(fleet.first, renewals={"publishCredentials": True})
    with signer.with_policies(published, of_cluster(fleet.second)):
        yield
    workload.kubectl("delete", "-f", POLICY)


def is_refused(client: Client, name: str) -> bool:
    """Write the lease of a node as its kubelet does; return whether the policy refuses it."""
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }
    try:
        client.apply(f"{LEASES}/{name}", lease)
    except ApiError as error:
        if "client certificate is not one of the last" in str(error):
            return True
        raise
    return False


def client_of(node: Node) -> Client:
    """Return a client with the present certificate of a node."""
    credential = node.call().credential
    number = len(list(node.directory.glob("kubelet-*.crt")))
    files = (
        node.directory / f"kubelet-{number}.crt",
        node.directory / f"kubelet-{number}.key",
    )
    for file, name in zip(files, ("clientCertificateData", "clientKeyData"), strict=True):
        file.write_text(credential[name])
    workload = node.tenant.workload
    return Client(server=workload.url, authority=workload.admin.authority, certificate=files)


def joined(machines: Machines) -> tuple[Node, Client]:
    """Join a node, and return it with a client that has its certificate."""
    node = machines.registered()
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
def test_ban_ends_the_certificate_for_writes(fleet: Fleet, machines: Machines) -> None:
    """Within a round of maintenance."""
    node, client = joined(machines)
    assert not is_refused(client, node.name)
    key = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    ban = {"spec": {"banned": {"reason": "stolen", "by": "test", "since": "2026-11-22T00:00:00Z"}}}
    fleet.management.admin.patch(f"{csrs.ENDORSEMENT_KEYS}/{key}", ban)
    wait_until(lambda: is_refused(client, node.name), what="the ban ends it", seconds=120)


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
