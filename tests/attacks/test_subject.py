"""Subjects that one reader takes for another node, or for more than a node.

The API server derives user name, groups and UID from a certificate's subject. A second O is another
group (`system:masters` has all rights), newer releases take the UID from 1.3.6.1.4.1.57683.2, and
of several CNs the last one counts. Similar names deceive comparisons that fold case, dots or
Unicode (P4). The Machine has all these names as its addresses, so only the grammar refuses them.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from common.errors import NodeNameInvalid, RequestMalformed, SubjectNotAllowed
from signer.kinds.machine import Address
from tests.attacks.requests import CN, forged, forgery
from tests.attacks.runner import Attack, Mutation, Table, assert_issued, assert_refused, attacks
from tests.builders.forgery import (
    OID_CN,
    OID_O,
    ORGANIZATION,
    PRINTABLE,
    UTF8,
    attribute,
    common_name,
    rdn,
    subject,
)
from tests.builders.scenario import NODE, Scenario

O_RDN, CN_RDN = rdn(ORGANIZATION), rdn(CN)
MASTERS = attribute(OID_O, b"system:masters")
UID_OF_KUBERNETES = attribute("06092b0601040183c25302", b"0")
BMP, UNIVERSAL, IA5, T61, VISIBLE = 0x1E, 0x1C, 0x16, 0x14, 0x1A


def named(*rdns: bytes) -> Mutation:
    """Request with this subject."""
    return forged(subject=subject(*rdns))


def node(name: str) -> Mutation:
    """Request a node name that is an address of the Machine."""

    def mutate(scenario: Scenario) -> None:
        address = Address(type="Hostname", address=name)
        scenario.change_machine(addresses=(address, *scenario.machine.addresses))
        name_of_node = subject(O_RDN, rdn(common_name(name.encode())))
        scenario.request_der = forgery(scenario, subject=name_of_node).der()

    return mutate


def common(value: bytes, tag: int = UTF8) -> Mutation:
    """Request with this CN, of this string type."""
    return named(O_RDN, rdn(attribute(OID_CN, value, tag)))


SYSTEM_NODE = b"system:node:" + NODE.encode()

SUBJECTS: Table = {
    SubjectNotAllowed: {
        "empty subject": named(),
        "no O": named(CN_RDN),
        "no CN": named(O_RDN),
        "O twice": named(O_RDN, O_RDN, CN_RDN),
        "O twice in one RDN": named(rdn(ORGANIZATION, ORGANIZATION), CN_RDN),
        "CN twice": named(O_RDN, CN_RDN, CN_RDN),
        "another node's CN after it": named(O_RDN, CN_RDN, rdn(common_name(b"node-2.example"))),
        "another node's CN in the same RDN": named(O_RDN, rdn(CN, common_name(b"node-2.example"))),
        "system:masters": named(rdn(MASTERS), CN_RDN),
        "system:masters as well": named(O_RDN, rdn(MASTERS), CN_RDN),
        "system:masters in the same RDN": named(rdn(ORGANIZATION, MASTERS), CN_RDN),
        "UID of Kubernetes": named(O_RDN, CN_RDN, rdn(UID_OF_KUBERNETES)),
        "UID of Kubernetes next to the CN": named(O_RDN, rdn(CN, UID_OF_KUBERNETES)),
        "UID of Kubernetes for the O": named(rdn(UID_OF_KUBERNETES), CN_RDN),
        "OU": named(O_RDN, CN_RDN, rdn(attribute("060355040b", b"x"))),
        "serialNumber": named(O_RDN, CN_RDN, rdn(attribute("0603550405", b"1"))),
        "UID of LDAP": named(O_RDN, CN_RDN, rdn(attribute("060a0992268993f22c640101", b"root"))),
        "e-mail address": named(
            O_RDN, CN_RDN, rdn(attribute("06092a864886f70d010901", b"a@b", IA5))
        ),
        "O in capitals": named(rdn(attribute(OID_O, b"system:Nodes")), CN_RDN),
        "O with a space": named(rdn(attribute(OID_O, b"system:nodes ")), CN_RDN),
        "O with NUL": named(rdn(attribute(OID_O, b"system:nodes\0")), CN_RDN),
        "empty O": named(rdn(attribute(OID_O, b"")), CN_RDN),
        "O and CN exchanged": named(
            rdn(attribute(OID_O, SYSTEM_NODE)), rdn(attribute(OID_CN, b"system:nodes"))
        ),
        "CN without prefix": common(NODE.encode()),
        "CN with the prefix in capitals": common(b"System:node:" + NODE.encode()),
        "CN with a space before": common(b" " + SYSTEM_NODE),
        "CN of an administrator": common(b"kubernetes-admin"),
        "CN of kube-controller-manager": common(b"system:kube-controller-manager"),
        "CN of a service account": common(b"system:serviceaccount:kube-system:node:x"),
        "CN of a bootstrap token": common(b"system:bootstrap:abcdef"),
        "empty CN": common(b""),
        "CN as BMPString": common(SYSTEM_NODE.decode().encode("utf-16-be"), BMP),
        "CN as UniversalString": common(SYSTEM_NODE.decode().encode("utf-32-be"), UNIVERSAL),
        "CN as IA5String": common(SYSTEM_NODE, IA5),
        "CN as T61String": common(SYSTEM_NODE, T61),
        "CN as VisibleString": common(SYSTEM_NODE, VISIBLE),
        "CN as OCTET STRING": common(SYSTEM_NODE, 0x04),
        "CN as INTEGER": common(b"\x01", 0x02),
        "CN by its parent's type": named(O_RDN, rdn(attribute("06025504", SYSTEM_NODE))),
    },
    RequestMalformed: {
        "CN by an OCTET STRING": named(O_RDN, rdn(attribute("0403550403", SYSTEM_NODE))),
        "CN as PrintableString with NUL": common(SYSTEM_NODE + b"\0", PRINTABLE),
    },
}

NAMES: Table = {
    NodeNameInvalid: {
        f"node name {what}": node(name)
        for what, name in {
            "empty": "",
            "in capitals": "Node-1.example",
            "with a trailing dot": "node-1.example.",
            "with a leading dot": ".node-1.example",
            "with two dots": "node-1..example",
            "with a leading hyphen": "-node-1.example",
            "with a trailing hyphen": "node-1.example-",
            "with a hyphen before a dot": "node-.example",
            "with an underscore": "node_1.example",
            "with a space": "node-1.example ",
            "with a line feed": "node-1.example\n",
            "with NUL": "node-1.example\0.evil",
            "with a colon": "x:node-1.example",
            "with the prefix again": "system:node:node-1.example",
            "with a slash": "node-1/example",
            "as a path": "../node-1",
            "with a wildcard": "*.example",
            "with a per cent sign": "node-1%2eexample",
            "with an umlaut": "nöde-1.example",
            "with Cyrillic letters": "n\u043ede-1.example",
            "with full-width letters": "\uff4eode-1.example",
            "with a Kelvin sign": "\u212aode-1.example",
            "with a soft hyphen": "node\u00ad-1.example",
            "with a zero-width space": "node-1\u200b.example",
            "with an ideographic full stop": "node-1\u3002example",
            "with right-to-left override": "node-1\u202e.example",
            "with an Arabic digit": "node-\u0661.example",
            "of 254 characters": "a" * 254,
            "of every host": "localhost",
            "of every host in a domain": "localhost.localdomain",
            "of every host as IPv6": "localhost6.localdomain6",
            "below the name of every host": "node-1.localhost",
        }.items()
    },
}

ATTACKS = attacks(SUBJECTS, NAMES)


def exchanged() -> Scenario:
    """Put the CN before the O: the order of RDNs does not matter."""
    scenario = Scenario()
    scenario.request_der = forgery(scenario, subject=subject(CN_RDN, O_RDN)).der()
    return scenario


def one_rdn() -> Scenario:
    """Put both into one RDN."""
    scenario = Scenario()
    scenario.request_der = forgery(scenario, subject=subject(rdn(CN, ORGANIZATION))).der()
    return scenario


def similar() -> Scenario:
    """Join with a name that only begins as that of every host."""
    name = "localhost-1.localhosts.example"
    scenario = Scenario(node_name=name)
    scenario.change_machine(addresses=(replace(scenario.machine.addresses[0], address=name),))
    return scenario


def longest() -> Scenario:
    """Join with the longest name that Kubernetes accepts."""
    name = ".".join(["a" * 62] * 4) + "a"
    scenario = Scenario(node_name=name)
    scenario.change_machine(addresses=(replace(scenario.machine.addresses[0], address=name),))
    return scenario


@pytest.mark.parametrize("scenario", [Scenario, exchanged, one_rdn])
def test_the_good_case_passes(scenario: type[Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("scenario", [longest, similar])
def test_unusual_name_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
