"""PKCS#10 requests (P1, P3, P4, P5): a good request passes, and each change is refused."""

import hashlib
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.errors import (
    RequestSignatureInvalid,
    TooLarge,
)
from common.node_identity import require_provider_id
from common.public_keys import spki_sha256
from common.requests.csr import decode_plain_request
from common.requests.pkcs10 import (
    MAX_PKCS10,
    OtherGeneralName,
    SubjectAltName,
    parse_pkcs10,
)
from tests import vectors
from tests.builders.forgery import (
    KEY,
    OID_CN,
    OID_O,
    OID_SAN,
    ORGANIZATION,
    PRINTABLE,
    PROVIDER_ID,
    RSA_SHA256,
    SEQUENCE,
    TRUE,
    VERSION_1,
    Forgery,
    alt_names,
    attribute,
    common_name,
    extension,
    extension_request,
    rdn,
    spki_of,
    subject,
    tlv,
)
from tests.builders.requests import LONGEST, RSA_KEY

CASES = vectors.cases("requests")
GOOD = Forgery().der()
WORKER = rdn(common_name(b"worker-1"))
assert len(LONGEST) == 253


def small_rsa_spki(bits: int, exponent: int) -> bytes:
    """Encode an RSA key without a private key."""
    modulus = (1 << bits - 1) + 1
    n = tlv(0x02, modulus.to_bytes(bits // 8 + 1, "big"))
    e = tlv(0x02, exponent.to_bytes(3, "big").lstrip(b"\0"))
    return tlv(SEQUENCE, RSA_ALGORITHM, tlv(0x03, b"\0", tlv(SEQUENCE, n, e)))


RSA_ALGORITHM = "300d06092a864886f70d0101010500"


ODD_KEY = ec.derive_private_key(2, ec.SECP256R1())
assert spki_of(ODD_KEY)[-1] % 2 == 1


def of_size(size: int) -> bytes:
    """Pad a request with a name. It has an RSA signature, whose length is constant."""
    filled = Forgery(
        attributes=(extension_request(alt_names(tlv(0x82, b"a" * (size - 800)))),),
        key=RSA_KEY,
        algorithm=RSA_SHA256,
    )
    missing = size - len(filled.der())
    name = tlv(0x82, b"a" * (size - 800 + missing))
    return replace(filled, attributes=(extension_request(alt_names(name)),)).der()


# Good requests


@pytest.mark.parametrize(
    "case", [c for c in CASES if "der" in c], ids=[c["name"] for c in CASES if "der" in c]
)
def test_requests_of_openssl_are_parsed(case: dict[str, Any]) -> None:
    der = decode_plain_request(case["pem"].encode())
    assert der.hex() == case["der"]
    request = parse_pkcs10(der)
    assert request.der == der
    assert request.sha256 == hashlib.sha256(der).digest()
    assert request.node_name == "worker-1.example.com"
    assert request.provider_id == "test:///zone-a/i-1"
    assert request.subject_alt_names is None


def test_serving_request_of_the_kubelet_is_parsed() -> None:
    (pem,) = (c["pem"] for c in CASES if c["name"] == "go-kubelet-serving")
    request = parse_pkcs10(decode_plain_request(pem.encode()))
    assert request.node_name == "worker-1"
    assert request.provider_id is None
    assert request.subject_alt_names == (
        "worker-1",
        "worker-1.example.com",
        ip_address("192.0.2.7"),
        ip_address("2001:db8::7"),
    )


def test_unchanged_forgery_is_accepted() -> None:
    request = parse_pkcs10(GOOD)
    assert (request.node_name, request.provider_id) == ("worker-1", "test:///zone-a/i-1")
    assert spki_sha256(request.public_key) == hashlib.sha256(spki_of(KEY)).digest()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(subject(WORKER, rdn(ORGANIZATION)), id="CN before O"),
        pytest.param(subject(rdn(ORGANIZATION, common_name(b"worker-1"))), id="one RDN of two"),
        pytest.param(
            subject(
                rdn(attribute(OID_O, b"system:nodes", PRINTABLE)),
                rdn(attribute(OID_CN, b"system:node:worker-1", PRINTABLE)),
            ),
            id="PrintableString",
        ),
    ],
)
def test_every_encoding_of_the_subject_is_accepted(name: bytes) -> None:
    assert parse_pkcs10(Forgery(subject=name).der()).node_name == "worker-1"


@pytest.mark.parametrize("name", [b"a", b"0", b"a-b.c-0", b"a" * 52, b"a" * 53, LONGEST])
def test_node_names_of_every_length_are_accepted(name: bytes) -> None:
    forged = Forgery(subject=subject(rdn(ORGANIZATION), rdn(common_name(name))))
    assert parse_pkcs10(forged.der()).node_name == name.decode()


def test_request_without_attributes_is_accepted() -> None:
    request = parse_pkcs10(Forgery(attributes=()).der())
    assert (request.provider_id, request.subject_alt_names) == (None, None)


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("300d06092a864886f70d01010b0500", hashes.SHA256()),
        ("300d06092a864886f70d01010c0500", hashes.SHA384()),
        ("300d06092a864886f70d01010d0500", hashes.SHA512()),
        ("300a06082a8648ce3d040302", hashes.SHA256()),
        ("300a06082a8648ce3d040303", hashes.SHA384()),
        ("300a06082a8648ce3d040304", hashes.SHA512()),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_supported_signature_algorithm_is_accepted(
    algorithm: str, digest: hashes.HashAlgorithm
) -> None:
    name = subject(rdn(ORGANIZATION), WORKER)
    key = RSA_KEY if algorithm.startswith("300d") else KEY
    info = tlv(SEQUENCE, VERSION_1, name, spki_of(key), tlv(0xA0))
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(info, padding.PKCS1v15(), digest)
    else:
        signature = key.sign(info, ec.ECDSA(digest))
    request = tlv(SEQUENCE, info, algorithm, tlv(0x03, b"\0", signature))
    assert parse_pkcs10(request).node_name == "worker-1"


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        (tlv(0x82, b"worker-1"), "worker-1"),
        (tlv(0x82, b"*.Example."), "*.Example."),
        (tlv(0x87, b"\xc0\x00\x02\x01"), ip_address("192.0.2.1")),
        (tlv(0x87, bytes(15) + b"\1"), ip_address("::1")),
        (tlv(0xA0, "06012a", tlv(0xA0, "0500")), OtherGeneralName(kind="otherName")),
        (tlv(0x81, b"a@b"), OtherGeneralName(kind="rfc822Name")),
        (tlv(0xA3), OtherGeneralName(kind="x400Address")),
        (tlv(0xA4, subject()), OtherGeneralName(kind="directoryName")),
        (tlv(0xA5), OtherGeneralName(kind="ediPartyName")),
        (tlv(0x86, b"spiffe://x"), OtherGeneralName(kind="uniformResourceIdentifier")),
        (tlv(0x88, b"\x2a"), OtherGeneralName(kind="registeredID")),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize("critical", [(), (TRUE,)], ids=["non-critical", "critical"])
def test_every_alternative_name_has_its_type(
    encoded: bytes, name: SubjectAltName, critical: tuple[str, ...]
) -> None:
    names = extension(OID_SAN, tlv(SEQUENCE, encoded), *critical)
    forged = Forgery(attributes=(extension_request(PROVIDER_ID, names),))
    assert parse_pkcs10(forged.der()).subject_alt_names == (name,)


def test_empty_alternative_names_differ_from_an_absent_extension() -> None:
    forged = Forgery(attributes=(extension_request(alt_names()),))
    assert parse_pkcs10(forged.der()).subject_alt_names == ()


# Refused requests


def test_p1_the_largest_request_is_parsed() -> None:
    assert MAX_PKCS10 == 16384
    largest, larger = of_size(MAX_PKCS10), of_size(MAX_PKCS10 + 1)
    assert (len(largest), len(larger)) == (MAX_PKCS10, MAX_PKCS10 + 1)
    assert parse_pkcs10(largest).der == largest
    with pytest.raises(TooLarge):
        parse_pkcs10(larger)


@pytest.mark.parametrize("bits", [2048, 4096])
def test_p3_signatures_of_every_rsa_size_are_verified(bits: int) -> None:
    forged = Forgery(spki=small_rsa_spki(bits, 65537), key=RSA_KEY, algorithm=RSA_SHA256)
    with pytest.raises(RequestSignatureInvalid, match="own key"):
        parse_pkcs10(forged.der())


@pytest.mark.parametrize("text", ["x", "aws:///eu-1/i-0a", "x" * 512, "!~"])
def test_p5_provider_ids_are_accepted(text: str) -> None:
    assert require_provider_id(text) == text
