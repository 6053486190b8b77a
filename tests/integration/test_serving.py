"""Serving certificates on real parts (S1 to S3): by the built-in signer, and by this project's."""

import ipaddress
import secrets
from dataclasses import replace

import pytest

from common.requests.csr import node_subject
from tests.harness.client import ApiError, Client
from tests.harness.controlplane import HOST, SERVICE_ADDRESS
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import CORE, Machine
from tests.integration import csrs
from tests.integration.credentials import client_of
from tests.integration.scripted_node import ServingScript
from tests.integration.serving_requests import ask, certified, named

pytestmark = pytest.mark.usefixtures("signer", "controllers")


@pytest.fixture(scope="module")
def controllers(fleet: Fleet) -> None:
    """Run kube-controller-manager, which signs approved requests."""
    fleet.first.workload.start_controllers()


def machine_path(node: Node) -> str:
    return f"/apis/{CORE}/v1beta2/namespaces/{node.tenant.namespace}/machines/{node.name}"


def with_addresses(machines: Machines, *, address: str = "") -> tuple[Node, str]:
    """Make a machine that may join, with an address that no other machine has; return both."""
    address = address or str(ipaddress.IPv6Address(b"\x20\x01\x0d\xb8" + secrets.token_bytes(12)))
    node = machines.power_on()
    addresses = [("Hostname", node.name), ("InternalIP", address)]
    machines.register(node, Machine(node.name, addresses=addresses))
    return node, address


def joined(machines: Machines, *, address: str = "") -> tuple[Node, Client, str]:
    """Make a machine that has joined; return it, a client with its certificate, and its address."""
    node, address = with_addresses(machines, address=address)
    return node, client_of(node), address


def test_a_kubelets_request_is_approved_and_signed(machines: Machines) -> None:
    node, client, address = joined(machines)
    name = ask(client, node.name, [node.name, address])
    certificate = certified(client, name)
    assert certificate.subject == node_subject(node.name)
    assert named(certificate) == {node.name, address}


def test_request_waits_for_an_address_that_is_not_reported_yet(
    machines: Machines, fleet: Fleet
) -> None:
    """S2: infrastructure providers report addresses late."""
    node, client, address = joined(machines)
    later = f"{node.name}.later.example"
    name = ask(client, node.name, [node.name, address, later])
    csrs.waiting_for(client, name, "AddressNotOfMachine")
    addresses = [("Hostname", node.name), ("InternalIP", address), ("ExternalDNS", later)]
    status = {"status": {"addresses": Machine(node.name, addresses=addresses).listed_addresses()}}
    fleet.management.admin.patch(f"{machine_path(node)}/status", status)
    assert named(certified(client, name)) == {node.name, address, later}


@pytest.mark.parametrize("stolen", [HOST, SERVICE_ADDRESS, "kubernetes.default.svc", "kubernetes"])
def test_a_name_of_the_control_plane_is_denied(machines: Machines, stolen: str) -> None:
    """S3: even if the Machine has the name, since guests can report any name."""
    node, client, _ = joined(machines, address=stolen if stolen[0].isdigit() else "")
    name = ask(client, node.name, [node.name, stolen])
    assert csrs.decided(client, name) == {"Denied": "AddressOfControlPlane"}


def test_a_node_that_was_never_attested_waits(machines: Machines) -> None:
    """The cluster issued its certificate, but no claim says which Machine it is."""
    node, address = with_addresses(machines)
    client = node.tenant.workload.client(f"system:node:{node.name}", "system:nodes")
    name = ask(client, node.name, [node.name, address])
    csrs.waiting_for(client, name, "NodeNameUnknown")
    assert node.call().status == 0
    assert named(certified(client, name)) == {node.name, address}


def test_a_node_gets_no_serving_certificate_for_another(machines: Machines) -> None:
    """M5. For the built-in signer, the API server's NodeRestriction refuses it first."""
    victim, _, _ = joined(machines)
    node, client, _ = joined(machines)
    with pytest.raises(ApiError, match="can only create a node CSR"):
        ask(client, victim.name, [victim.name])
    impostor = replace(node, name=victim.name, provider_id=node.provider_id)
    script = ServingScript(impostor, client=client, dns_names=[victim.name])
    assert script.refusal() == "RequesterNameMismatch"


def test_our_signer_attests_each_certificate(machines: Machines) -> None:
    node, client, address = joined(machines)
    script = ServingScript(
        node,
        client=client,
        dns_names=[node.name],
        ip_addresses=[ipaddress.ip_address(address)],
    )
    name = csrs.new_name()
    assert script.file(name, script.answer(name)) == {"Approved": "Attested"}
    certificate = certified(client, name)
    assert certificate.subject == node_subject(node.name)
    assert named(certificate) == {node.name, address}


def test_our_signer_accepts_the_same_names(machines: Machines) -> None:
    """S1 to S3, on the answer: the signer does not check them on an offer."""
    node, client, _ = joined(machines)
    foreign = ServingScript(node, client=client, dns_names=["other.example"])
    name = csrs.new_name()
    foreign.put(name, foreign.encoded(name))
    csrs.waiting_for(client, name, "AddressNotOfMachine")
    stolen = ServingScript(node, client=client, dns_names=["kubernetes.default"])
    assert stolen.attest() == {"Denied": "AddressOfControlPlane"}
    nameless = ServingScript(node, client=client)
    assert nameless.attest() == {"Denied": "SubjectAltNameMissing"}
