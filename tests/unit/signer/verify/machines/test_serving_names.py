"""S1 to S3, for our own signer and for the built-in one."""

from ipaddress import IPv4Address, ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from common.formats.pem import encode_block
from common.requests.csr import node_subject
from common.requests.pkcs10 import SubjectAltName
from signer.host_names import HostName, canonical_name, normalize
from signer.kinds.csr import Csr
from signer.kinds.machine import Address
from signer.verify.machines import serving_names
from signer.verify.machines.serving_names import verify_serving_names
from signer.verify.requests.recognize import CsrKind
from tests.builders.scenario import HOME, NODE, PROVIDER_ID, Scenario, machine

ADDRESSES = (
    Address(type="Hostname", address=NODE),
    Address(type="InternalDNS", address="Node-1.Internal."),
    Address(type="InternalIP", address="192.0.2.11"),
    Address(type="InternalIP", address="2001:DB8::000b"),
    Address(type="ExternalIP", address="198.51.100.11"),
    Address(type="ExternalIP", address="::ffff:203.0.113.11"),
)


@pytest.fixture
def scenario() -> Scenario:
    """Give a Machine with addresses of every kind."""
    scenario = Scenario()
    scenario.change_machine(addresses=ADDRESSES)
    return scenario


def check(scenario: Scenario, *names: SubjectAltName) -> tuple[object, ...]:
    verified = verify_serving_names(names, scenario.machine, scenario.inventory)
    return (*verified.dns, *verified.addresses)


GOOD: dict[str, tuple[SubjectAltName, SubjectAltName]] = {
    "host name": (NODE, NODE),
    "in capitals": (NODE.upper(), NODE),
    "with the root's dot": (NODE + ".", NODE),
    "internal name": ("node-1.internal", "node-1.internal"),
    "IPv4": (ip_address("192.0.2.11"), ip_address("192.0.2.11")),
    "IPv4 that the Machine writes as IPv6": (
        ip_address("203.0.113.11"),
        ip_address("203.0.113.11"),
    ),
    "external IPv4": (ip_address("198.51.100.11"), ip_address("198.51.100.11")),
    "IPv6, however written": (ip_address("2001:db8:0::b"), ip_address("2001:db8::b")),
}


@pytest.mark.parametrize(("asked", "certified"), GOOD.values(), ids=GOOD)
def test_s2_the_machines_addresses_pass(
    scenario: Scenario, asked: SubjectAltName, certified: SubjectAltName
) -> None:
    """In one form, however they are written."""
    assert check(scenario, asked) == (certified,)


def test_s2_several_pass_together(scenario: Scenario) -> None:
    """As kubelets ask for them."""
    assert check(scenario, NODE, IPv4Address("192.0.2.11")) == (NODE, IPv4Address("192.0.2.11"))


@pytest.mark.parametrize(
    "text",
    [
        "svc.example",
        "default",
        "pod",
        "kube-system.example",
        "mykube-system",
        "cluster.local",
        "node.cluster.local",
        "10.95.255.255",
        "10.112.0.0",
        "fd00::1",
    ],
)
def test_s3_names_next_to_the_reserved_ones_pass(scenario: Scenario, text: str) -> None:
    scenario.change_machine(addresses=(Address(type="InternalDNS", address=text),))
    assert check(scenario, normalize(text)) == (normalize(text),)


def test_s3_service_domain_is_that_of_the_cluster(scenario: Scenario) -> None:
    scenario.change_cluster(service_domain="Corp.Example.", service_networks=())
    name = "web.shop.svc.cluster.local"
    scenario.change_machine(addresses=(Address(type="InternalDNS", address=name),))
    assert check(scenario, name) == (name,)


def test_s3_serving_request_folds_no_name_of_the_control_plane(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Service with an address of 4,096 letters took 4.7 s of each serving request."""
    folded: list[str] = []

    def fold(text: str) -> HostName:
        folded.append(text)
        return canonical_name(text)

    monkeypatch.setattr(serving_names, "canonical_name", fold)
    hosts = {canonical_name(f"host-{number}") for number in range(1000)}
    scenario.change_cluster(control_plane_hosts=frozenset(hosts))
    check(scenario, NODE, ip_address("192.0.2.11"))
    assert folded == [NODE]


# our own signer


def test_our_serving_signer_runs_the_same_exchange() -> None:
    """By the node itself, with the names in the request."""
    scenario = Scenario()
    scenario.for_serving(NODE, "192.0.2.11")
    scenario.verify_offer()
    names = scenario.verify_answer().serving_names
    assert names is not None
    assert (names.dns, names.addresses) == ((NODE,), (IPv4Address("192.0.2.11"),))


def test_our_serving_signer_checks_the_names_of_the_answer_alone() -> None:
    """The names of an offer are not checked: nothing has proved its sender yet."""
    scenario = Scenario()
    scenario.for_serving("192.0.2.12")
    scenario.verify_offer()


# the built-in signer


def builtin(scenario: Scenario, *names: str) -> Csr:
    """Make a request as a kubelet does."""
    scenario.kind = CsrKind.BUILTIN_SERVING
    general = [x509.IPAddress(ip_address(n)) if n[0].isdigit() else x509.DNSName(n) for n in names]
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(node_subject(scenario.node_name))
        .add_extension(x509.SubjectAlternativeName(general), critical=False)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    block = encode_block("CERTIFICATE REQUEST", request.public_bytes(Encoding.DER))
    return scenario.csr(block)


def attested() -> Scenario:
    """Give a node that has its claim."""
    scenario = Scenario()
    scenario.as_node()
    scenario.put_claim()
    return scenario


def test_builtin_an_attested_node_is_approved() -> None:
    """The Machine is that of its claim."""
    scenario = attested()
    verified = scenario.verify_builtin(builtin(scenario, NODE, "192.0.2.11"))
    assert (verified.node_name, verified.machine.name) == (NODE, "machine-1")


def test_builtin_by_policy_a_node_without_claim_is_found_by_node_ref() -> None:
    """A sign that a policy may accept, for nodes that joined before."""
    scenario = attested()
    scenario.store.nodes.clear()
    scenario.change_machine(node_ref=NODE)
    scenario.change_policy("serving", node_ref_fallback=True)
    for other in ("a-node", "z-node"):
        made = machine(name=other, uid=other, provider_id=other, node_ref=other, addresses=())
        scenario.store.machines[HOME].append(made)
    assert scenario.verify_builtin(builtin(scenario, NODE)).machine.provider_id == PROVIDER_ID
