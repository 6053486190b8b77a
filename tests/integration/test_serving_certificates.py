"""serving on a real cluster: the exchange for a serving certificate, and its result file."""

import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.names import SERVING_SIGNER
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.integration import csrs
from tests.integration.timeouts import enough

pytestmark = pytest.mark.usefixtures("signer")

ADDRESSES = ipaddress.ip_network("198.51.100.0/24").hosts()


@pytest.fixture
def address() -> str:
    """Return an address that no other Machine has."""
    return str(next(ADDRESSES))


@pytest.fixture
def node(machines: Machines, address: str) -> Node:
    """Return a node that has joined, whose Machine has a name and an address."""
    joined_node = machines.power_on()
    addresses = [("Hostname", joined_node.name), ("InternalIP", address)]
    machines.register(joined_node, Machine(joined_node.name, addresses=addresses))
    assert joined_node.call().status == 0
    return joined_node


def file_of(node: Node) -> Path:
    """Return the path of tlsCertFile and tlsPrivateKeyFile."""
    return node.state / "serving/credential.pem"


def filed(node: Node) -> list[str]:
    """Return the requesters of serving certificates for this node's name."""
    return [
        csr["spec"]["username"]
        for csr in node.tenant.workload.admin.list(csrs.CSRS)
        if csr["spec"]["signerName"] == SERVING_SIGNER
        and csrs.subject(csr) == f"system:node:{node.name}"
    ]


def test_certificate_is_attested_and_for_the_machines_addresses(node: Node, address: str) -> None:
    joined_node = node.call("serving", "--dns", node.name, "--address", address)
    assert (joined_node.status, joined_node.complaint) == (0, "")
    assert joined_node.output.startswith(f"{node.name}: certificate until ")
    content = file_of(node).read_bytes()
    leaf = x509.load_pem_x509_certificate(content)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [node.name, address]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    leaf.verify_directly_issued_by(node.tenant.workload.authority.certificate)
    key = load_pem_private_key(content[content.index(b"-----BEGIN PRIVATE KEY") :], None)
    assert key.public_key() == leaf.public_key()
    assert filed(node) == [f"system:node:{node.name}"] * 2


def test_one_file_serves_tls_for_certificate_and_key(node: Node, address: str) -> None:
    """OpenSSL and Go both skip the text before the first PEM block."""
    assert node.call("serving", "--address", address).status == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file_of(node), file_of(node))
    assert stat.S_IMODE(file_of(node).stat().st_mode) == 0o600


def test_nothing_is_filed_before_the_certificate_is_due_or_different(
    node: Node, address: str
) -> None:
    for _ in range(2):
        assert node.call("serving", "--address", address).status == 0
    assert len(filed(node)) == 2
    assert node.call("serving", "--address", address, "--dns", node.name).status == 0
    assert len(filed(node)) == 4


def test_client_certificate_is_not_changed(node: Node, address: str) -> None:
    before = node.call().certificate
    assert node.call("serving", "--address", address).status == 0
    assert node.call().certificate == before
    assert len(csrs.of_node(node)) == 2


def test_serving_reports_and_waits_for_an_unknown_address(node: Node) -> None:
    """S2: the Machine may get the address later."""
    enough(
        lambda budget: node.call("serving", "--address", "203.0.113.77", budget),
        lambda end: "AddressNotOfMachine" in end.complaint,
    )
    assert not file_of(node).exists()


def test_name_of_the_control_plane_is_refused(node: Node) -> None:
    """S3: no node gets a certificate for a name of the control plane."""
    refused = node.call("serving", "--dns", "kubernetes.default.svc")
    assert refused.status == 1
    assert "AddressOfControlPlane" in refused.complaint


def test_serving_reports_that_the_node_has_not_joined(machines: Machines) -> None:
    refused = machines.registered().call("serving", "--address", "203.0.113.77")
    assert refused.status == 1
    assert "ClientCertificateMissing" in refused.complaint
