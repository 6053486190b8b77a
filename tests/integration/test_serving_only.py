"""Policies of the mode ServingOnly: clusters without TPMs get checked serving certificates."""

import ipaddress
import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from common.requests.csr import node_subject
from tests.harness.client import Client
from tests.harness.controlplane import HOST
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import CORE, Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.integration import csrs
from tests.integration.bindings import BINDINGS, existing_bindings
from tests.integration.scripted_node import Script
from tests.integration.serving_requests import ask, certified, named

BUILTIN_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.fixture(scope="module", autouse=True)
def without_tpms(signer: Signer, fleet: Fleet) -> Iterator[int]:
    """Let kube-controller-manager issue the client certificates of the first cluster.

    Return the number of lines that the signer's log had before.
    """
    lines = len(signer.lines)
    workload = fleet.first.workload
    workload.start_controllers()
    with signer.with_policies(of_cluster(fleet.first, mode="ServingOnly")):
        workload.allow_automatic_approval()
        yield lines
        for name in existing_bindings(workload):
            workload.admin.delete(f"{BINDINGS}/{name}")


def new_address() -> str:
    """Return an address that no other machine has."""
    return str(ipaddress.IPv6Address(b"\x20\x01\x0d\xb8" + secrets.token_bytes(12)))


def joined(machines: Machines, fleet: Fleet) -> tuple[Node, Client, str]:
    """Join a node without attestation; return it, a client with its certificate, its address."""
    node, address = machines.power_on(), new_address()
    addresses = [("Hostname", node.name), ("InternalIP", address)]
    fleet.add_machine(node.tenant, Machine(node.name, addresses=addresses))
    client = ordinary_kubelet(node)
    spec = {"providerID": node.provider_id}
    client.create("/api/v1/nodes", {"metadata": {"name": node.name}, "spec": spec})
    # Cluster API's controllers do not run here.
    path = f"/apis/{CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"
    status = {"status": {"nodeRef": {"name": node.name}}}
    fleet.management.admin.patch(f"{path}/status", status)
    return node, client, address


def ordinary_kubelet(node: Node) -> Client:
    """Return a client with the certificate that a kubelet gets for a bootstrap token."""
    workload = node.tenant.workload
    key = generate_private_key(SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(node_subject(node.name))
    bootstrapper = workload.with_token(workload.bootstrap_token())
    name = csrs.file(
        bootstrapper,
        request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
        signerName=BUILTIN_CLIENT_SIGNER,
    )
    wait_until(lambda: bool(csrs.certificate(bootstrapper, name)), what="a client certificate")
    files = (node.directory / "node.crt", node.directory / "node.key")
    files[0].write_bytes(csrs.certificate(bootstrapper, name))
    pem = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    files[1].write_bytes(key.private_bytes(*pem))
    return replace(workload.admin, certificate=files)


def test_names_of_the_machine_are_approved_and_signed(machines: Machines, fleet: Fleet) -> None:
    node, client, address = joined(machines, fleet)
    name = ask(client, node.name, [node.name, address])
    assert named(certified(client, name)) == {node.name, address}


def test_attestation_waits_with_a_clear_reason(machines: Machines) -> None:
    script = Script(machines.registered())
    message = script.waiting_for("ServingOnly")
    assert "only approves requests to kubernetes.io/kubelet-serving" in message


def test_disabled_approvals_show_verdicts_and_decide_nothing(
    machines: Machines, fleet: Fleet, signer: Signer
) -> None:
    node, client, address = joined(machines, fleet)
    spec = of_cluster(fleet.first, mode="ServingOnly", approval="Disabled")
    with signer.with_policies(spec):
        good = ask(client, node.name, [node.name, address])
        bad = ask(client, node.name, [node.name, HOST])
        reasons = [csrs.waiting_for(client, name, "ApprovalDisabled") for name in (good, bad)]
        assert reasons[0].endswith("the request would be approved")
        assert "the request would be denied: AddressOfControlPlane: " in reasons[1]
        assert csrs.conditions(client, good) == csrs.conditions(client, bad) == {}
    assert named(certified(client, good)) == {node.name, address}
    assert csrs.decided(client, bad) == {"Denied": "AddressOfControlPlane"}


def test_bindings_that_give_nodes_their_certificates_stay(
    machines: Machines, fleet: Fleet, signer: Signer, without_tpms: int
) -> None:
    """The signer looks at bindings before it decides requests of the cluster."""
    joined(machines, fleet)
    assert len(existing_bindings(fleet.first.workload)) == 2
    events = {line["event"] for line in signer.lines[without_tpms:]}
    assert "binding removed" not in events
