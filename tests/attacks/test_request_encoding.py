"""Requests that two parsers read differently.

BER has many encodings of each value. Lenient parsers may read another name, another extension or
nothing, but the digest in the quote covers the bytes. So the bytes must be the one DER encoding of
their content (P3). Each request here is signed as it is.
"""

import pytest

from common.csr import encode_request
from common.errors import AttributeNotAllowed, RequestMalformed, SubjectNotAllowed, TooLarge
from common.evidence import encode_attestation_data
from signer.model import Csr
from tests.attacks.requests import (
    ATTRIBUTES,
    CN,
    PROVIDER_EXTENSION,
    SUBJECT,
    forged,
    forgery,
    rewritten,
)
from tests.attacks.runner import Attack, assert_issued, assert_refused
from tests.builders.forgery import (
    ECDSA_SHA256,
    FALSE,
    OID_CN,
    OID_EXTENSION_REQUEST,
    OID_PROVIDER_ID,
    ORGANIZATION,
    PRINTABLE,
    PROVIDER_ID,
    SEQUENCE,
    SET,
    UTF8,
    extension,
    extension_request,
    rdn,
    spki_of,
    subject,
    tlv,
)
from tests.builders.scenario import NODE, Scenario

O_RDN = rdn(ORGANIZATION)
NAME = b"system:node:" + NODE.encode()


def long_length(value: bytes) -> bytes:
    """Encode a short length in the long form."""
    assert value[1] < 0x80
    return value[:1] + b"\x81" + value[1:]


def padded_length(value: bytes) -> bytes:
    """Encode a length with a leading zero."""
    assert value[1] < 0x80
    return value[:1] + b"\x82\x00" + value[1:]


def indefinite(value: bytes) -> bytes:
    """Encode an indefinite length."""
    return value[:1] + b"\x80" + value[2:] + b"\0\0"


def cn_of(value: bytes, oid: str = OID_CN) -> bytes:
    """Write a subject whose CN has this value."""
    return subject(O_RDN, rdn(tlv(SEQUENCE, oid, value)))


def extended(value: bytes) -> tuple[bytes, ...]:
    """Write attributes with one extension."""
    return (extension_request(value),)


def outer(scenario: Scenario) -> bytes:
    """Write the good request."""
    return forgery(scenario).der()


def resized(request: bytes, header: bytes) -> bytes:
    """Give the outermost SEQUENCE another header."""
    assert request[:2] == b"\x30\x82"
    return header + request[4:]


def unsorted(scenario: Scenario) -> None:
    """Write a SET of two in the wrong order."""
    pair = sorted((ORGANIZATION, CN), reverse=True)
    scenario.request_der = forgery(scenario, subject=subject(tlv(SET, *pair))).der()


def signature_at(request: bytes) -> int:
    """Return the position of the final BIT STRING; an ECDSA signature has about 70 bytes."""
    return next(
        len(request) - n - 2 for n in range(60, 80) if request[-n - 2 : -n] == bytes([0x03, n])
    )


def unused_bit(scenario: Scenario) -> None:
    """Declare the signature's last bit, which is zero, unused."""
    good = outer(scenario)
    while good[-1] & 1:
        good = outer(scenario)
    at = signature_at(good)
    scenario.request_der = good[: at + 2] + b"\1" + good[at + 3 :]


def octets(scenario: Scenario) -> None:
    """Encode the signature as OCTET STRING."""
    good = outer(scenario)
    at = signature_at(good)
    scenario.request_der = good[:at] + b"\4" + good[at + 1 :]


def nothing(scenario: Scenario) -> Csr:
    """Send an empty block."""
    return scenario.answer_csr(
        request=encode_request(b"", encode_attestation_data(scenario.answer()))
    )


def depth(levels: int) -> bytes:
    """Nest SEQUENCEs."""
    value = b"\5\0"
    for _ in range(levels):
        value = tlv(SEQUENCE, value)
    return value


IN_A_SET = f"{SET:02x}{ECDSA_SHA256[2:]}"


def key_algorithm_in_a_set(scenario: Scenario) -> None:
    """Encode the key's AlgorithmIdentifier as a SET."""
    good = spki_of(scenario.kubelet_key)
    edited = good[:2] + bytes([SET]) + good[3:]
    assert good[2] == SEQUENCE
    scenario.request_der = forgery(scenario, spki=edited).der()


ATTACKS = [
    Attack("P1", "request over 16 KiB", TooLarge, forged(trailing=bytes(16 * 1024))),
    Attack("P3", "nothing", RequestMalformed, nothing),
    Attack("P3", "one byte", RequestMalformed, rewritten(lambda _: b"\x30")),
    Attack("P3", "trailing byte", RequestMalformed, rewritten(lambda d: d + b"\0")),
    Attack("P3", "another request after it", RequestMalformed, rewritten(lambda d: d + d)),
    Attack("P3", "last byte missing", RequestMalformed, rewritten(lambda d: d[:-1])),
    Attack(
        "P3",
        "length of three bytes for two",
        RequestMalformed,
        rewritten(lambda d: resized(d, b"\x30\x83\0" + d[2:4])),
    ),
    Attack(
        "P3",
        "indefinite length",
        RequestMalformed,
        rewritten(lambda d: resized(d, b"\x30\x80") + b"\0\0"),
    ),
    Attack(
        "P3",
        "length of four gigabytes",
        RequestMalformed,
        rewritten(lambda d: resized(d, b"\x30\x84\xff\xff\xff\xff")),
    ),
    Attack(
        "P3",
        "length of 127 bytes",
        RequestMalformed,
        rewritten(lambda d: resized(d, b"\x30\xff" + b"\xff" * 127)),
    ),
    Attack("P3", "SET for SEQUENCE", RequestMalformed, rewritten(lambda d: b"\x31" + d[1:])),
    Attack("P3", "tag of two bytes", RequestMalformed, rewritten(lambda d: b"\x3f\x10" + d[1:])),
    Attack("P3", "application tag", RequestMalformed, rewritten(lambda d: b"\x70" + d[1:])),
    Attack("P3", "primitive SEQUENCE", RequestMalformed, rewritten(lambda d: b"\x10" + d[1:])),
    Attack("P3", "an element after the signature", RequestMalformed, forged(trailing=b"\5\0")),
    Attack("P3", "signature with an unused bit", RequestMalformed, unused_bit),
    Attack("P3", "signature in an OCTET STRING", RequestMalformed, octets),
    Attack("P3", "version 2", RequestMalformed, forged(version="020101")),
    Attack("P3", "version -1", RequestMalformed, forged(version="0201ff")),
    Attack("P3", "version in two bytes", RequestMalformed, forged(version="02020000")),
    Attack("P3", "empty version", RequestMalformed, forged(version="0200")),
    Attack("P3", "NULL for a version", RequestMalformed, forged(version="0500")),
    Attack("P3", "version 0 as ENUMERATED", RequestMalformed, forged(version="0a0100")),
    Attack("P3", "long length of the name", RequestMalformed, forged(subject=long_length(SUBJECT))),
    Attack(
        "P3", "padded length of the name", RequestMalformed, forged(subject=padded_length(SUBJECT))
    ),
    Attack(
        "P3", "indefinite length of the name", RequestMalformed, forged(subject=indefinite(SUBJECT))
    ),
    Attack(
        "P3",
        "long length of the CN",
        RequestMalformed,
        forged(subject=cn_of(long_length(tlv(UTF8, NAME)))),
    ),
    Attack(
        "P4",
        "CN of two pieces",
        SubjectNotAllowed,
        forged(subject=cn_of(tlv(0x2C, tlv(UTF8, b"system:node:"), tlv(UTF8, NODE.encode())))),
    ),
    Attack(
        "P3",
        "CN with bytes that are no UTF-8",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME + b"\xff"))),
    ),
    Attack(
        "P3",
        "CN in overlong UTF-8",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME[:-1] + b"\xc1\xa5"))),
    ),
    Attack(
        "P3",
        "CN with a surrogate",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME + b"\xed\xa0\x80"))),
    ),
    Attack(
        "P3",
        "PrintableString with a wrong character",
        RequestMalformed,
        forged(subject=cn_of(tlv(PRINTABLE, NAME + b"*"))),
    ),
    Attack(
        "P3",
        "attribute type with a leading zero digit",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME), "0604" + "55800403")),
    ),
    Attack(
        "P3",
        "attribute type that does not end",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME), "0603550483")),
    ),
    Attack(
        "P3",
        "empty attribute type",
        RequestMalformed,
        forged(subject=cn_of(tlv(UTF8, NAME), "0600")),
    ),
    Attack(
        "P3",
        "attribute without a value",
        RequestMalformed,
        forged(subject=subject(O_RDN, rdn(tlv(SEQUENCE, OID_CN)))),
    ),
    Attack(
        "P3",
        "attribute with two values",
        RequestMalformed,
        forged(
            subject=subject(O_RDN, rdn(tlv(SEQUENCE, OID_CN, tlv(UTF8, NAME), tlv(UTF8, b"x"))))
        ),
    ),
    Attack("P3", "empty RDN", RequestMalformed, forged(subject=subject(O_RDN, rdn(CN), tlv(SET)))),
    Attack(
        "P3",
        "SEQUENCE for an RDN",
        RequestMalformed,
        forged(subject=subject(O_RDN, tlv(SEQUENCE, CN))),
    ),
    Attack("P3", "RDN out of order", RequestMalformed, unsorted),
    Attack("P3", "NULL for a name", RequestMalformed, forged(subject=b"\5\0")),
    Attack("P3", "string for a name", RequestMalformed, forged(subject=tlv(UTF8, NAME))),
    Attack("P3", "NULL among the attributes", RequestMalformed, forged(attributes=(b"\5\0",))),
    Attack(
        "P3",
        "long length of the attributes",
        RequestMalformed,
        forged(attributes=(long_length(tlv(SEQUENCE, OID_EXTENSION_REQUEST, tlv(SET))),)),
    ),
    Attack(
        "P3",
        "attribute without values",
        RequestMalformed,
        forged(attributes=(tlv(SEQUENCE, OID_EXTENSION_REQUEST),)),
    ),
    Attack("P3", "no extensions", RequestMalformed, forged(attributes=(extension_request(),))),
    Attack(
        "P3",
        "explicit default of criticality",
        RequestMalformed,
        forged(attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), FALSE))),
    ),
    Attack(
        "P3",
        "criticality 1",
        RequestMalformed,
        forged(attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "010101"))),
    ),
    Attack(
        "P3",
        "criticality of two bytes",
        RequestMalformed,
        forged(attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "0102ffff"))),
    ),
    Attack(
        "P3",
        "criticality as INTEGER",
        RequestMalformed,
        forged(attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "0201ff"))),
    ),
    Attack(
        "P3",
        "extension value in no OCTET STRING",
        RequestMalformed,
        forged(attributes=extended(tlv(SEQUENCE, OID_PROVIDER_ID, tlv(UTF8, b"x")))),
    ),
    Attack(
        "P3",
        "extension value in pieces",
        RequestMalformed,
        forged(
            attributes=extended(
                tlv(SEQUENCE, OID_PROVIDER_ID, tlv(0x24, tlv(0x04, tlv(UTF8, b"x"))))
            )
        ),
    ),
    Attack(
        "P3",
        "extension of four parts",
        RequestMalformed,
        forged(
            attributes=extended(
                tlv(SEQUENCE, OID_PROVIDER_ID, "0101ff", tlv(0x04, b""), tlv(0x04, b""))
            )
        ),
    ),
    Attack(
        "P5",
        "nested a thousand deep",
        AttributeNotAllowed,
        forged(attributes=(*ATTRIBUTES, depth(1000))),
    ),
    Attack(
        "P3",
        "signature algorithm with a long length",
        RequestMalformed,
        forged(algorithm=long_length(bytes.fromhex(ECDSA_SHA256)).hex()),
    ),
    Attack("P3", "signature algorithm in a SET", RequestMalformed, forged(algorithm=IN_A_SET)),
    Attack("P3", "key algorithm in a SET", RequestMalformed, key_algorithm_in_a_set),
]


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)
    assert PROVIDER_EXTENSION != PROVIDER_ID


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
