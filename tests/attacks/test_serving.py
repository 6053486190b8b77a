"""Serving certificates with names of the API server or of another node.

A certificate of the cluster's CA with the API server's name makes its holder the API server for
every pod. Approvers have compared names with case, checked addresses but no DNS names, or checked
the form of a name but not its owner
(cloud-provider-gcp PR #185, kubelet-serving-cert-approver #337, talos-cloud-controller-manager
PR #360). Here every name must be one of this Machine, in one form, and none of the control plane.
Our own signer requires a TPM, the built-in signer does not (S1 to S3).
"""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from common.errors import AttestationError, PemBlocksUnexpected, RequestMalformed, TooLarge
from common.formats.pem import encode_block
from common.names import BUILTIN_SERVING_SIGNER, PEM_REQUEST
from signer.errors import (
    AddressNotOfMachine,
    AddressOfAnotherMachine,
    AddressOfControlPlane,
    AddressReserved,
    EndorsementKeyBanned,
    EndorsementKeyReleased,
    MachineNotFound,
    NodeNameMismatch,
    NodeNameUnknown,
    NodeOfAnotherMachine,
    NodeRefMismatch,
    ProviderIDMissing,
    RequesterNameMismatch,
    RequesterNotAllowed,
    SubjectAltNameMissing,
    SubjectAltNameNotAllowed,
    UsagesNotAllowed,
)
from signer.host_names import canonical_name
from signer.kinds.csr import Csr
from signer.kinds.endorsement_key import Release, TrustBasis
from signer.kinds.machine import Address, Machine
from signer.kinds.node import Node
from signer.policy.policy import PolicyMode
from signer.verify.requests.recognize import CsrKind
from tests.attacks.requests import PROVIDER_EXTENSION, forged, forgery
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused, reconcile_once
from tests.attacks.scenarios import OTHER_ID
from tests.builders.forgery import (
    OID_SAN,
    SEQUENCE,
    UTF8,
    alt_names,
    extension,
    extension_request,
    tlv,
)
from tests.builders.scenario import (
    ABROAD,
    ANSWER_UID,
    HOME,
    NODE,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
)
from tests.builders.software_tpm import endorsement_key

ADDRESS = "192.0.2.11"
DNS, IP = 0x82, 0x87


def serving() -> Scenario:
    """Request a name and an address of the Machine from our own signer."""
    scenario = Scenario()
    scenario.for_serving(NODE, ADDRESS)
    return scenario


def dns(name: str) -> bytes:
    """Write a DNS name."""
    return tlv(DNS, name.encode())


def ip(address: str) -> bytes:
    """Write an address of any number of bytes."""
    return tlv(IP, ip_address(address).packed)


OWN = (dns(NODE), ip(ADDRESS))


def asking(*names: bytes, alone: bool = False) -> Mutation:
    """Request these names in addition to the Machine's own ones."""
    requested = names if alone else (*OWN, *names)

    def mutate(scenario: Scenario) -> None:
        extensions = extension_request(PROVIDER_EXTENSION, alt_names(*requested))
        scenario.request_der = forgery(scenario, attributes=(extensions,)).der()

    return mutate


def raw_extension(value: bytes) -> Mutation:
    """Request with this value of the extension."""

    def mutate(scenario: Scenario) -> None:
        extensions = extension_request(PROVIDER_EXTENSION, extension(OID_SAN, value))
        scenario.request_der = forgery(scenario, attributes=(extensions,)).der()

    return mutate


def nothing(scenario: Scenario) -> None:
    """Request no names."""
    scenario.request_der = forgery(scenario).der()


def reported(*addresses: tuple[str, str]) -> Mutation:
    """Request names that the guest reported and the provider copied into the Machine."""

    def mutate(scenario: Scenario) -> None:
        reported_addresses = tuple(Address(type=kind, address=text) for kind, text in addresses)
        scenario.change_machine(addresses=(*scenario.machine.addresses, *reported_addresses))
        requested = [ip(t) if t[0].isdigit() or ":" in t else dns(t) for _, t in addresses]
        extensions = extension_request(PROVIDER_EXTENSION, alt_names(*OWN, *requested))
        scenario.request_der = forgery(scenario, attributes=(extensions,)).der()

    return mutate


def service_of_own_domain(scenario: Scenario) -> None:
    """Request the name of a Service in a cluster with its own domain and no known networks."""
    scenario.change_cluster(service_domain="Corp.Example.", service_networks=())
    reported(("InternalDNS", "web.shop.svc.corp.example"))(scenario)


def control_plane(*hosts: str, asked: bytes) -> Mutation:
    """Request a name of the control plane in another spelling; the guest reported it."""

    def mutate(scenario: Scenario) -> None:
        given = tuple(Address(type="InternalIP", address=host) for host in hosts)
        scenario.change_cluster(control_plane_hosts=frozenset(map(canonical_name, hosts)))
        scenario.change_machine(addresses=(*scenario.machine.addresses, *given))
        mutation = asking(asked)
        mutation(scenario)

    return mutate


def second_machine(*addresses: str) -> Machine:
    """Make a Machine with these addresses."""
    return machine(
        name="machine-2",
        uid="machine-uid-2",
        provider_id=OTHER_ID,
        addresses=tuple(Address(type="InternalIP", address=a) for a in addresses),
    )


def shared(address: str) -> Mutation:
    """Give another Machine the same address."""
    return lambda scenario: scenario.store.machines[HOME].append(second_machine(address))


def other_nodes_address(scenario: Scenario) -> None:
    """Request the address of another Machine, which the own Machine does not report."""
    scenario.store.machines[HOME].append(second_machine("192.0.2.12"))
    asking(ip("192.0.2.12"))(scenario)


def builtin() -> Scenario:
    """Request from the built-in signer without a TPM: the node's claim names its Machine."""
    scenario = serving()
    scenario.put_claim()
    return scenario


def attack(
    name: str,
    reason: type[AttestationError],
    mutate: Mutation,
    scenario: Callable[[], Scenario] = serving,
) -> Attack:
    """Return an attack. Our own signer checks the names of answers only."""
    return Attack(name, reason, mutate if scenario is builtin else answered(mutate), scenario)


def answered(mutate: Mutation) -> Mutation:
    """File only the answer."""

    def mutate_answer(scenario: Scenario) -> Csr:
        mutate(scenario)
        return scenario.answer_csr()

    return mutate_answer


FORMS = (
    [
        attack("no extension", SubjectAltNameMissing, nothing),
        attack("an empty extension", SubjectAltNameMissing, asking(alone=True)),
    ]
    + [
        attack(name, SubjectAltNameNotAllowed, asking(value))
        for name, value in {
            "a wildcard": dns("*.example"),
            "a wildcard for everything": dns("*"),
            "a wildcard in a label": dns("node-*.example"),
            "an empty DNS name": dns(""),
            "the root": dns("."),
            "a DNS name with two trailing dots": dns(NODE + ".."),
            "a DNS name with a dot before": dns("." + NODE),
            "a DNS name with two dots": dns("node-1..example"),
            "a DNS name with a space": dns(NODE + " "),
            "a DNS name with NUL": dns(NODE + "\0.evil"),
            "a DNS name with a line feed": dns(NODE + "\n"),
            "a DNS name with a port": dns(NODE + ":6443"),
            "a DNS name with an underscore": dns("node_1.example"),
            "a DNS name with a hyphen before": dns("-node-1.example"),
            "IDNA that ends in a hyphen": dns("xn--node-1-.example"),
            "a DNS name with a slash": dns(NODE + "/x"),
            "a URL as DNS name": dns("https://node-1.example"),
            "a DNS name of 254 characters": dns("a" * 254),
            "an IPv4 address as DNS name": dns(ADDRESS),
            "an IPv4 address as DNS name, with a dot": dns(ADDRESS + "."),
            "an IPv6 address as DNS name": dns("2001:db8::11"),
            "an IPv4-mapped address as DNS name": dns("::ffff:192.0.2.11"),
            "the control plane's address as DNS name": dns("192.0.2.1"),
            "the control plane's address as DNS name, with a dot": dns("192.0.2.1."),
            "an IPv4-mapped IPv6 address": ip("::ffff:192.0.2.11"),
            "the control plane's address, IPv4-mapped": ip("::ffff:192.0.2.1"),
            "a URI": tlv(0x86, b"https://node-1.example"),
            "a SPIFFE ID": tlv(0x86, b"spiffe://cluster/node-1"),
            "an e-mail address": tlv(0x81, b"root@node-1.example"),
            "a directory name": tlv(0xA4, tlv(SEQUENCE)),
            "another name": tlv(0xA0, "06012a", tlv(0xA0, tlv(UTF8, NODE.encode()))),
            "a user principal name": tlv(
                0xA0, "060a2b060104018237140203", tlv(0xA0, tlv(UTF8, b"admin@example"))
            ),
            "an X.400 address": tlv(0xA3),
            "an EDI party name": tlv(0xA5),
            "a registered ID": tlv(0x88, b"\x2a\x03"),
        }.items()
    ]
    + [
        attack(name, RequestMalformed, mutate)
        for name, mutate in {
            "an address of 5 bytes": asking(tlv(IP, b"\xc0\0\2\x0b\0")),
            "an address and a mask": asking(tlv(IP, b"\xc0\0\2\x0b\xff\xff\xff\0")),
            "an address of no bytes": asking(tlv(IP)),
            "an address as text": asking(tlv(IP, b"192.0.2.11")),
            "a DNS name in UTF-8": asking(dns("n\u00f6de-1.example")),
            "a DNS name in full-width letters": asking(dns("\uff4eode-1.example")),
            "a name of choice 9": asking(tlv(0x89, b"x")),
            "a string for a name": asking(tlv(UTF8, NODE.encode())),
            "a DNS name in pieces": asking(tlv(0xA2, tlv(0x16, b"node-1"), tlv(0x16, b".example"))),
            "the names twice": raw_extension(tlv(SEQUENCE, *OWN) * 2),
            "names in a SET": raw_extension(tlv(0x31, *sorted(OWN))),
            "names without a SEQUENCE": raw_extension(OWN[0]),
            "names with a trailing byte": raw_extension(tlv(SEQUENCE, *OWN) + b"\0"),
            "names of an indefinite length": raw_extension(b"\x30\x80" + b"".join(OWN) + b"\0\0"),
        }.items()
    ]
)
OWNERS = [
    attack(name, AddressNotOfMachine, asking(value))
    for name, value in {
        "another node's name": dns("node-2.example"),
        "the domain alone": dns("example"),
        "the host alone": dns("node-1"),
        "a name below its own": dns("x.node-1.example"),
        "a name that begins with its own": dns("node-1.example.com"),
        "a name that ends with its own": dns("xnode-1.example"),
        "IDNA of the own name": dns("xn--node-1.example"),
        "IDNA of a look-alike": dns("xn--nde-1-jua.example"),
        "a name of the internet": dns("www.example.com"),
        "an address as one number": dns("3221225995"),
        "an address in hexadecimal": dns("0xc000020b"),
        "an address with zeros": dns("192.0.2.011"),
        "an address of three parts": dns("192.0.523"),
        "a label of 64 characters": dns("a" * 64 + ".example"),
        "the address next door": ip("192.0.2.12"),
        "its address, IPv4-compatible": ip("::192.0.2.11"),
        "its address in NAT64": ip("64:ff9b::192.0.2.11"),
        "its address in 6to4": ip("2002:c000:20b::"),
    }.items()
] + [
    attack(
        "a stranger's name alone",
        AddressNotOfMachine,
        asking(dns("node-2.example"), alone=True),
    ),
    attack("another node's address", AddressNotOfMachine, other_nodes_address),
]
RESERVED = (
    [
        attack(name, AddressReserved, asking(value))
        for name, value in {
            "localhost": dns("localhost"),
            "the loopback address": ip("127.0.0.1"),
            "every address": ip("0.0.0.0"),  # noqa: S104 - asked for, not bound to
            "the loopback address of IPv6": ip("::1"),
            "every address of IPv6": ip("::"),
            "broadcast": ip("255.255.255.255"),
            "the metadata service": ip("169.254.169.254"),
            "a link-local address": ip("fe80::1"),
        }.items()
    ]
    + [
        attack(f"{text}, reported", AddressReserved, reported(("ExternalIP", text)))
        for text in (
            "127.0.0.1",
            "169.254.169.254",
            "fd00:ec2::254",
            *("224.0.0.1", "10.96.0.10", "fd00:10:96::a", "127.9.9.9", "169.254.1.1", "ff02::1"),
            *("fd20:ce::254", "168.63.129.16", "100.100.100.200", "10.111.255.255"),
        )
    ]
    + [
        attack(f"{text}, reported", AddressReserved, reported(("InternalDNS", text)))
        for text in (
            *("localhost", "web.shop.svc", "web.shop.svc.cluster.local"),
            *("metrics-server.kube-system", "web-0.db.default", "pod-1.shop.pod"),
            *("db.localhost", "svc", "WEB.Shop.SVC.", "pod-1.shop.pod.cluster.local"),
            *("a.kube-public.", "a.kube-node-lease", "pod-2.shop.POD", "metadata.google.internal"),
        )
    ]
    + [attack("a Service of a cluster with its own domain", AddressReserved, service_of_own_domain)]
)
CONTROL_PLANE = [
    attack(name, AddressOfControlPlane, mutate)
    for name, mutate in {
        "the API server's name": asking(dns("api.example")),
        "the API server's name in capitals": asking(dns("API.Example")),
        "the API server's name with a dot": asking(dns("api.example.")),
        "the API server's name in capitals with a dot": asking(dns("API.EXAMPLE.")),
        "the API server's name alone": asking(dns("api.example"), alone=True),
        "the API server's address": asking(ip("192.0.2.1")),
        "the service": asking(dns("kubernetes")),
        "the service's address": asking(ip("10.96.0.1")),
        "the API server's name, reported": reported(("Hostname", "api.example")),
        "the API server's address, reported": reported(("InternalIP", "192.0.2.1")),
        "the service, reported": reported(("InternalDNS", "kubernetes")),
        "the service's address, reported": reported(("ExternalIP", "10.96.0.1")),
        "an IPv6 address in another form": control_plane(
            "2001:0db8:0:0:0:0:0:0001", asked=ip("2001:db8::1")
        ),
        "an IPv6 address in capitals": control_plane("2001:DB8::A", asked=ip("2001:db8::a")),
        "an IPv4 address that is mapped there": control_plane(
            "::ffff:192.0.2.99", asked=ip("192.0.2.99")
        ),
        "a name in capitals there": control_plane("API.EXAMPLE.ORG", asked=dns("api.example.org")),
        "a name with a dot there": control_plane("api.example.org.", asked=dns("api.example.org")),
        "an address with a dot there": control_plane("192.0.2.99.", asked=ip("192.0.2.99")),
        "IDNA of a name there": control_plane(
            "b\u00fccher.example", asked=dns("xn--bcher-kva.example")
        ),
        "IDNA of a name in capitals there": control_plane(
            "B\u00dcCHER.EXAMPLE.", asked=dns("XN--BCHER-KVA.example")
        ),
        "IDNA of a name in pieces there": control_plane(
            "bu\u0308cher.example", asked=dns("xn--bcher-kva.example")
        ),
        "IDNA of 2008 of a sharp s there": control_plane(
            "stra\u00dfe.example", asked=dns("xn--strae-oqa.example")
        ),
        "IDNA of 2003 of a sharp s there": control_plane(
            "stra\u00dfe.example", asked=dns("strasse.example")
        ),
        "a name in full-width letters there": control_plane(
            "\uff41\uff50\uff49\uff0eexample", asked=dns("api.example")
        ),
        "a name with an ideographic dot there": control_plane(
            "\u4f8b\u3002example", asked=dns("xn--fsq.example")
        ),
    }.items()
] + [
    attack(name, AddressOfAnotherMachine, mutate)
    for name, mutate in {
        "its own address, which another Machine reports too": shared(ADDRESS),
        "its own name, which another Machine reports too": shared(NODE),
        "its own name, which another Machine reports in capitals": shared(NODE.upper() + "."),
        "its own address, which another Machine reports mapped": shared("::ffff:192.0.2.11"),
        "its own name, which another Machine reports in full-width letters": shared(
            "\uff4e\uff4f\uff44\uff45-1.example"
        ),
    }.items()
]


def unattested(mutate: Mutation, **fields: Any) -> Mutation:  # noqa: ANN401 - fields of a Csr
    """Send only the request to the built-in signer."""

    def mutate_builtin(scenario: Scenario) -> Csr:
        mutate(scenario)
        scenario.kind = CsrKind.BUILTIN_SERVING
        request = encode_block(PEM_REQUEST, scenario.pkcs10())
        return scenario.csr(request, name="csr-abcde", uid=ANSWER_UID, **fields)

    return mutate_builtin


def with_attestation(scenario: Scenario) -> Csr:
    """Send attestation data to the built-in signer, which does not read it."""
    return scenario.answer_csr(signer_name=BUILTIN_SERVING_SIGNER)


def unclaimed(scenario: Scenario) -> None:
    """Request as a node that was never attested."""
    scenario.store.keys.clear()
    scenario.store.nodes.clear()


def half_claimed(scenario: Scenario) -> None:
    """Request as a node whose TPM another node has claimed since."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(node_name="node-2.example"))


def claimed_abroad(scenario: Scenario) -> None:
    """Request as a node whose TPM a node of the same name in another cluster has claimed since."""
    scenario.put_key(key_name(scenario.ek), held_by=scenario.holder(cluster=ABROAD))


def banned(scenario: Scenario) -> None:
    """Request as a node whose TPM is banned."""
    scenario.put_claim(banned=True, basis=TrustBasis.REGISTERED)


def unclaimed_by_node_ref(scenario: Scenario) -> None:
    """Request as a node that only `nodeRef` names; a node can cause that itself."""
    unclaimed(scenario)
    scenario.change_machine(node_ref=NODE)


def serving_only(mutate: Mutation) -> Mutation:
    """Request as an unattested node, under a policy that needs no attestation."""

    def mutate_serving_only(scenario: Scenario) -> Csr:
        unclaimed_by_node_ref(scenario)
        scenario.policy = replace(scenario.policy, mode=PolicyMode.SERVING_ONLY)
        csr = unattested(mutate)(scenario)
        assert isinstance(csr, Csr)
        return csr

    return mutate_serving_only


def without_node_ref(scenario: Scenario) -> None:
    """Request as a node that Cluster API has not found."""
    scenario.change_machine(node_ref=None)


def with_two_node_refs(scenario: Scenario) -> None:
    """Request as a node that two Machines name."""
    scenario.store.machines[HOME].append(replace(second_machine(), node_ref=NODE))


def with_the_provider_id_of_a_victim(scenario: Scenario) -> None:
    """Request a victim's address. Cluster API follows the provider ID that the node has written."""
    scenario.change_machine(node_ref=None)
    host_name = Address(type="Hostname", address="node-2.example")
    victim = second_machine("192.0.2.12")
    victim = replace(victim, addresses=(host_name, *victim.addresses), node_ref=NODE)
    scenario.store.machines[HOME].append(victim)
    scenario.inventory.nodes.append(Node(name=NODE, provider_id=OTHER_ID))
    asking(ip("192.0.2.12"), alone=True)(scenario)


def released(scenario: Scenario) -> None:
    """Request as a node whose key was released from the Cluster."""
    release = Release.of(HOME, provider_id=None)
    scenario.put_key(key_name(scenario.ek), released_from=(release,))


def of_a_gone_machine(scenario: Scenario) -> None:
    """Request with the claim of a Machine that is gone, for the next one on the hardware."""
    scenario.put_claim(machine=("machine-0", "machine-uid-0"))


def with_a_broken_claim(scenario: Scenario) -> None:
    """Request under a policy that accepts nodeRef, with a claim that has lost its key."""
    scenario.store.keys.clear()
    scenario.change_machine(node_ref=NODE)
    serving = replace(scenario.policy.serving, node_ref_fallback=True)
    scenario.policy = replace(scenario.policy, serving=serving)


def without_a_host_name(scenario: Scenario) -> None:
    """Request as a node whose name nothing but nodeRef gives to the Machine, not even its Node."""
    with_another_provider_id_since(scenario)
    scenario.change_machine(addresses=(Address(type="InternalIP", address=ADDRESS),))
    asking(ip(ADDRESS), alone=True)(scenario)


def with_another_provider_id_since(scenario: Scenario) -> None:
    """Request as a Node that was created again with another provider ID."""
    scenario.inventory.nodes.append(Node(name=NODE, provider_id=OTHER_ID))


def with_a_second_node(scenario: Scenario) -> None:
    """Request while another Node has the same provider ID."""
    scenario.inventory.nodes.append(Node(name="node-2.example", provider_id=PROVIDER_ID))


def as_another(scenario: Scenario) -> None:
    """Request another node's name."""
    scenario.username = "system:node:node-2.example"


def as_bootstrapper(scenario: Scenario) -> None:
    """Request with a bootstrap token."""
    scenario.username, scenario.groups = (
        "system:bootstrap:abcdef",
        frozenset({"system:bootstrappers"}),
    )


BUILTIN = [
    attack(f"built in: {a.name}", a.reason, unattested(a.mutate), builtin)
    for a in (*FORMS, *OWNERS, *RESERVED, *CONTROL_PLANE)
] + [
    Attack("built in: with attestation data", PemBlocksUnexpected, with_attestation, builtin),
    attack(
        "built in: annotations over 32 KiB",
        TooLarge,
        unattested(nothing, annotations_size=32 * 1024 + 1),
        builtin,
    ),
    *(
        attack(f"built in: {name}", UsagesNotAllowed, unattested(nothing, usages=usages), builtin)
        for name, usages in {
            "usages of clients": ("client auth", "digital signature"),
            "server auth alone": ("server auth",),
        }.items()
    ),
    *(
        attack(f"built in: {name}", reason, unattested(mutate), builtin)
        for name, reason, mutate in (
            ("a node that was never attested", NodeNameUnknown, unclaimed),
            ("a node whose TPM is another's", NodeNameUnknown, half_claimed),
            ("a node whose TPM is abroad", NodeNameUnknown, claimed_abroad),
            ("a node that nodeRef alone knows", NodeNameUnknown, unclaimed_by_node_ref),
            ("a node whose claim has lost its key", NodeNameUnknown, with_a_broken_claim),
            ("a claim of a Machine that is gone", NodeNameUnknown, of_a_gone_machine),
            ("a Machine that is gone", MachineNotFound, lambda s: s.store.machines[HOME].clear()),
            ("a node whose TPM was released", EndorsementKeyReleased, released),
            ("a node whose TPM is banned", EndorsementKeyBanned, banned),
            ("another node's name", RequesterNameMismatch, as_another),
            ("a bootstrapper", RequesterNotAllowed, as_bootstrapper),
        )
    ),
]
SERVING_ONLY = [
    attack(f"serving only: {a.name}", a.reason, serving_only(a.mutate), builtin)
    for a in (*OWNERS, *RESERVED, *CONTROL_PLANE)
] + [
    attack(f"serving only: {name}", reason, serving_only(mutate), builtin)
    for name, reason, mutate in (
        ("a node without nodeRef", NodeNameUnknown, without_node_ref),
        ("a node that two Machines name", NodeNameUnknown, with_two_node_refs),
        ("a victim's provider ID", NodeNameMismatch, with_the_provider_id_of_a_victim),
        ("a node that no address names", NodeNameUnknown, without_a_host_name),
        ("another provider ID since", NodeOfAnotherMachine, with_another_provider_id_since),
        ("two Nodes with one provider ID", NodeRefMismatch, with_a_second_node),
        ("another node's name", RequesterNameMismatch, as_another),
        ("a bootstrapper", RequesterNotAllowed, as_bootstrapper),
    )
]
NO_PROVIDER_ID = [attack("no provider ID", ProviderIDMissing, forged(attributes=()))]
ATTACKS = FORMS + NO_PROVIDER_ID + OWNERS + RESERVED + CONTROL_PLANE + BUILTIN + SERVING_ONLY


def test_the_good_case_passes() -> None:
    assert_issued(serving)


def test_the_good_case_of_the_built_in_signer_passes() -> None:
    scenario = builtin()
    csr = unattested(asking(alone=False))(scenario)
    assert isinstance(csr, Csr)
    assert reconcile_once(scenario, csr).outcome == "approved"


def test_the_good_case_of_serving_only_passes() -> None:
    scenario = builtin()
    csr = serving_only(asking())(scenario)
    assert isinstance(csr, Csr)
    assert reconcile_once(scenario, csr).outcome == "approved"


@pytest.mark.parametrize("name", ["NODE-1.example", "node-1.example.", "Node-1.Example."])
def test_own_name_in_another_form_is_accepted(name: str) -> None:
    """The signer normalizes case and the trailing dot on both sides."""
    scenario = serving()
    asking(dns(name), alone=True)(scenario)
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


def test_machine_with_other_addresses_does_not_stop_a_request() -> None:
    """The other Machine has no address of this Machine."""
    scenario = serving()
    scenario.store.machines[HOME].append(replace(second_machine("192.0.2.12"), node_ref=NODE))
    assert endorsement_key().tpm2b != scenario.ek.tpm2b
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
