"""Requests that two parsers read differently.

BER has many encodings of each value. Lenient parsers may read another name, another extension or
nothing, but the digest in the quote covers the bytes. So the bytes must be the one DER encoding of
their content (P3). Each request here is signed as it is.
"""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import AttributeNotAllowed, RequestMalformed, SubjectNotAllowed, TooLarge
from common.evidence import encode_attestation_data
from common.requests.csr import encode_request
from signer.kinds.csr import Csr
from tests.attacks.requests import (
    ATTRIBUTES,
    CN,
    PROVIDER_EXTENSION,
    SUBJECT,
    forged,
    forgery,
    rewritten,
)
from tests.attacks.runner import Attack, Table, assert_issued, assert_refused, attacks
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
    VERSION_1,
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


def no_attributes(scenario: Scenario) -> None:
    """Leave out the attributes, instead of encoding none."""
    info = tlv(SEQUENCE, VERSION_1, SUBJECT, spki_of(scenario.kubelet_key))
    assert isinstance(scenario.kubelet_key, ec.EllipticCurvePrivateKey)
    bits = b"\0" + scenario.kubelet_key.sign(info, ec.ECDSA(hashes.SHA256()))
    scenario.request_der = tlv(SEQUENCE, info, ECDSA_SHA256, tlv(0x03, bits))


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


TABLE: Table = {
    TooLarge: {"request over 16 KiB": forged(trailing=bytes(16 * 1024))},
    RequestMalformed: {
        "nothing": nothing,
        "one byte": rewritten(lambda _: b"\x30"),
        "trailing byte": rewritten(lambda d: d + b"\0"),
        "another request after it": rewritten(lambda d: d + d),
        "last byte missing": rewritten(lambda d: d[:-1]),
        "length of three bytes for two": rewritten(lambda d: resized(d, b"\x30\x83\0" + d[2:4])),
        "indefinite length": rewritten(lambda d: resized(d, b"\x30\x80") + b"\0\0"),
        "length of four gigabytes": rewritten(lambda d: resized(d, b"\x30\x84\xff\xff\xff\xff")),
        "length of 127 bytes": rewritten(lambda d: resized(d, b"\x30\xff" + b"\xff" * 127)),
        "SET for SEQUENCE": rewritten(lambda d: b"\x31" + d[1:]),
        "tag of two bytes": rewritten(lambda d: b"\x3f\x10" + d[1:]),
        "application tag": rewritten(lambda d: b"\x70" + d[1:]),
        "primitive SEQUENCE": rewritten(lambda d: b"\x10" + d[1:]),
        "an element after the signature": forged(trailing=b"\5\0"),
        "signature with an unused bit": unused_bit,
        "signature in an OCTET STRING": octets,
        "version 2": forged(version="020101"),
        "version -1": forged(version="0201ff"),
        "version in two bytes": forged(version="02020000"),
        "empty version": forged(version="0200"),
        "NULL for a version": forged(version="0500"),
        "version 0 as ENUMERATED": forged(version="0a0100"),
        "long length of the name": forged(subject=long_length(SUBJECT)),
        "padded length of the name": forged(subject=padded_length(SUBJECT)),
        "indefinite length of the name": forged(subject=indefinite(SUBJECT)),
        "long length of the CN": forged(subject=cn_of(long_length(tlv(UTF8, NAME)))),
        "CN with bytes that are no UTF-8": forged(subject=cn_of(tlv(UTF8, NAME + b"\xff"))),
        "CN in overlong UTF-8": forged(subject=cn_of(tlv(UTF8, NAME[:-1] + b"\xc1\xa5"))),
        "CN with a surrogate": forged(subject=cn_of(tlv(UTF8, NAME + b"\xed\xa0\x80"))),
        "PrintableString with a wrong character": forged(
            subject=cn_of(tlv(PRINTABLE, NAME + b"*"))
        ),
        "attribute type with a leading zero digit": forged(
            subject=cn_of(tlv(UTF8, NAME), "0604" + "55800403")
        ),
        "attribute type that does not end": forged(subject=cn_of(tlv(UTF8, NAME), "0603550483")),
        "empty attribute type": forged(subject=cn_of(tlv(UTF8, NAME), "0600")),
        "attribute without a value": forged(subject=subject(O_RDN, rdn(tlv(SEQUENCE, OID_CN)))),
        "attribute with two values": forged(
            subject=subject(O_RDN, rdn(tlv(SEQUENCE, OID_CN, tlv(UTF8, NAME), tlv(UTF8, b"x"))))
        ),
        "empty RDN": forged(subject=subject(O_RDN, rdn(CN), tlv(SET))),
        "SEQUENCE for an RDN": forged(subject=subject(O_RDN, tlv(SEQUENCE, CN))),
        "RDN out of order": unsorted,
        "NULL for a name": forged(subject=b"\5\0"),
        "string for a name": forged(subject=tlv(UTF8, NAME)),
        "attributes left out": no_attributes,
        "NULL among the attributes": forged(attributes=(b"\5\0",)),
        "long length of the attributes": forged(
            attributes=(long_length(tlv(SEQUENCE, OID_EXTENSION_REQUEST, tlv(SET))),)
        ),
        "attribute without values": forged(attributes=(tlv(SEQUENCE, OID_EXTENSION_REQUEST),)),
        "no extensions": forged(attributes=(extension_request(),)),
        "explicit default of criticality": forged(
            attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), FALSE))
        ),
        "criticality 1": forged(
            attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "010101"))
        ),
        "criticality of two bytes": forged(
            attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "0102ffff"))
        ),
        "criticality as INTEGER": forged(
            attributes=extended(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), "0201ff"))
        ),
        "extension value in no OCTET STRING": forged(
            attributes=extended(tlv(SEQUENCE, OID_PROVIDER_ID, tlv(UTF8, b"x")))
        ),
        "extension value in pieces": forged(
            attributes=extended(
                tlv(SEQUENCE, OID_PROVIDER_ID, tlv(0x24, tlv(0x04, tlv(UTF8, b"x"))))
            )
        ),
        "extension of four parts": forged(
            attributes=extended(
                tlv(SEQUENCE, OID_PROVIDER_ID, "0101ff", tlv(0x04, b""), tlv(0x04, b""))
            )
        ),
        "signature algorithm with a long length": forged(
            algorithm=long_length(bytes.fromhex(ECDSA_SHA256)).hex()
        ),
        "signature algorithm in a SET": forged(algorithm=IN_A_SET),
        "key algorithm in a SET": key_algorithm_in_a_set,
    },
    SubjectNotAllowed: {
        "CN of two pieces": forged(
            subject=cn_of(tlv(0x2C, tlv(UTF8, b"system:node:"), tlv(UTF8, NODE.encode())))
        )
    },
    AttributeNotAllowed: {"nested a thousand deep": forged(attributes=(*ATTRIBUTES, depth(1000)))},
}
ATTACKS = attacks(TABLE)


def test_the_good_case_passes() -> None:
    assert_issued(Scenario)
    assert PROVIDER_EXTENSION != PROVIDER_ID


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)
