"""PKCS#10 requests (P1, P3, P4, P5): a good request passes, and each change is refused."""

import hashlib
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key
from hypothesis import given
from hypothesis import strategies as st

from common.csr import decode_plain_request
from common.errors import (
    AttestationError,
    AttributeNotAllowed,
    ExtensionNotAllowed,
    NodeNameInvalid,
    ProviderIDMalformed,
    RequestKeyNotAllowed,
    RequestMalformed,
    RequestSignatureInvalid,
    SubjectNotAllowed,
    TooLarge,
)
from common.node_identity import require_node_name, require_provider_id
from common.pkcs10 import (
    MAX_PKCS10,
    OtherGeneralName,
    SubjectAltName,
    parse_pkcs10,
)
from common.public_keys import spki_sha256
from tests import vectors
from tests.builders import forgery
from tests.builders.forgery import (
    ECDSA_SHA256,
    FALSE,
    KEY,
    OID_CN,
    OID_EXTENSION_REQUEST,
    OID_KEY_USAGE,
    OID_O,
    OID_PROVIDER_ID,
    OID_SAN,
    ORGANIZATION,
    PRINTABLE,
    PROVIDER_ID,
    RSA_SHA256,
    SEQUENCE,
    SET,
    TRUE,
    UTF8,
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

CASES = vectors.cases("requests")
GOOD = Forgery().der()
WORKER = rdn(common_name(b"worker-1"))
LONGEST = b".".join([b"a" * 62] * 4) + b"aa"
assert len(LONGEST) == 253


def rsa_key() -> rsa.RSAPrivateKey:
    """Return an RSA 2048 key from the vectors, since generating one is slow."""
    data = bytes.fromhex(vectors.cases("credentials")[0]["private_key"])
    key = load_der_private_key(data, None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


RSA_KEY = rsa_key()


def small_rsa_spki(bits: int, exponent: int) -> bytes:
    """Encode an RSA key without a private key."""
    modulus = (1 << bits - 1) + 1
    n = tlv(0x02, modulus.to_bytes(bits // 8 + 1, "big"))
    e = tlv(0x02, exponent.to_bytes(3, "big").lstrip(b"\0"))
    return tlv(SEQUENCE, RSA_ALGORITHM, tlv(0x03, b"\0", tlv(SEQUENCE, n, e)))


RSA_ALGORITHM = "300d06092a864886f70d0101010500"
P256_ALGORITHM = "301306072a8648ce3d020106082a8648ce3d030107"


def point(encoded: bytes) -> bytes:
    """Encode a P-256 key with this point."""
    return tlv(SEQUENCE, P256_ALGORITHM, tlv(0x03, b"\0", encoded))


EVEN_KEY = ec.derive_private_key(3, ec.SECP256R1())
"""The last bit of its point is 0."""


ODD_KEY = ec.derive_private_key(2, ec.SECP256R1())
assert spki_of(ODD_KEY)[-1] % 2 == 1


def spare_bit() -> bytes:
    """Encode a key with one unused bit; its bytes are those of the whole key."""
    encoded = spki_of(EVEN_KEY)[-65:]
    assert encoded[-1] % 2 == 0
    return tlv(SEQUENCE, P256_ALGORITHM, tlv(0x03, b"\1", encoded))


def without_attributes() -> bytes:
    """Omit the attributes instead of encoding none."""
    info = tlv(SEQUENCE, VERSION_1, subject(rdn(ORGANIZATION), WORKER), spki_of(KEY))
    signature = KEY.sign(info, ec.ECDSA(hashes.SHA256()))
    return tlv(SEQUENCE, info, ECDSA_SHA256, tlv(0x03, b"\0", signature))


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


def compressed(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a key with a compressed point."""
    encoded = spki_of(key)[-65:]
    return point(bytes([2 + encoded[-1] % 2]) + encoded[1:33])


def hybrid(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Encode a key with a hybrid point (X9.62)."""
    encoded = spki_of(key)[-65:]
    return point(bytes([6 + encoded[-1] % 2]) + encoded[1:])


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


def test_rsa_request_is_accepted() -> None:
    request = parse_pkcs10(Forgery(key=RSA_KEY, algorithm=RSA_SHA256).der())
    assert spki_sha256(request.public_key) == hashlib.sha256(spki_of(RSA_KEY)).digest()


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


def test_p1_large_request_is_refused() -> None:
    forged = Forgery(attributes=(extension_request(alt_names(tlv(0x82, b"a" * 16384))),))
    with pytest.raises(TooLarge):
        parse_pkcs10(forged.der())


def test_p1_the_largest_request_is_parsed() -> None:
    assert MAX_PKCS10 == 16384
    largest, larger = of_size(MAX_PKCS10), of_size(MAX_PKCS10 + 1)
    assert (len(largest), len(larger)) == (MAX_PKCS10, MAX_PKCS10 + 1)
    assert parse_pkcs10(largest).der == largest
    with pytest.raises(TooLarge):
        parse_pkcs10(larger)


def test_p3_request_changed_after_signing_is_refused() -> None:
    with pytest.raises(RequestSignatureInvalid):
        parse_pkcs10(GOOD.replace(b"worker-1", b"worker-2"))


def test_p3_request_signed_by_another_key_is_refused() -> None:
    other = ec.derive_private_key(7, ec.SECP256R1())
    with pytest.raises(RequestSignatureInvalid):
        parse_pkcs10(Forgery(spki=spki_of(other)).der())


@pytest.mark.parametrize(
    ("forged", "algorithm"),
    [
        (Forgery(), "300906072a8648ce3d0401"),
        (Forgery(), "300c06082a8648ce3d0403020500"),
        (Forgery(), RSA_SHA256),
        (Forgery(key=RSA_KEY), "300b06092a864886f70d01010b"),
        (Forgery(key=RSA_KEY), "300d06092a864886f70d0101050500"),
        (Forgery(key=RSA_KEY), "300b06092a864886f70d01010a"),
        (Forgery(key=RSA_KEY), "300a06082a8648ce3d040302"),
    ],
    ids=["SHA-1", "NULL", "RSA", "no NULL", "RSA with SHA-1", "RSASSA-PSS", "ECDSA for RSA"],
)
def test_p3_other_signature_algorithms_are_refused(forged: Forgery, algorithm: str) -> None:
    forged = Forgery(key=forged.key, algorithm=algorithm)
    with pytest.raises(RequestSignatureInvalid, match="algorithm"):
        parse_pkcs10(forged.der())


@pytest.mark.parametrize(
    "spki",
    [
        pytest.param(spki_of(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))), id="25519"),
        pytest.param(spki_of(ec.derive_private_key(5, ec.SECP521R1())), id="P-521"),
        pytest.param(spki_of(ec.derive_private_key(5, ec.SECP256K1())), id="secp256k1"),
        pytest.param(point(b"\4" + bytes(64)), id="point not on the curve"),
        pytest.param(point(b"\0"), id="point at infinity"),
        pytest.param(small_rsa_spki(1024, 65537), id="RSA 1024"),
        pytest.param(small_rsa_spki(2047, 65537), id="RSA 2047"),
        pytest.param(small_rsa_spki(4097, 65537), id="RSA 4097"),
        pytest.param(small_rsa_spki(2048, 3), id="exponent 3"),
        pytest.param(small_rsa_spki(2048, 1), id="exponent 1"),
        pytest.param(
            spki_of(RSA_KEY).replace(bytes.fromhex("0101010500"), bytes.fromhex("01010a0500")),
            id="RSASSA-PSS key",
        ),
        pytest.param(
            spki_of(RSA_KEY).replace(bytes.fromhex("0101010500"), bytes.fromhex("0101070500")),
            id="OAEP key",
        ),
    ],
)
def test_p3_other_keys_are_refused(spki: bytes) -> None:
    with pytest.raises(RequestKeyNotAllowed):
        parse_pkcs10(Forgery(spki=spki).der())


@pytest.mark.parametrize("bits", [2048, 4096])
def test_p3_signatures_of_every_rsa_size_are_verified(bits: int) -> None:
    forged = Forgery(spki=small_rsa_spki(bits, 65537), key=RSA_KEY, algorithm=RSA_SHA256)
    with pytest.raises(RequestSignatureInvalid, match="own key"):
        parse_pkcs10(forged.der())


TWO_VALUES = tlv(SET, tlv(SEQUENCE, PROVIDER_ID), tlv(SEQUENCE, PROVIDER_ID))


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(GOOD + b"\0", id="trailing byte"),
        pytest.param(GOOD[:-1], id="truncated"),
        pytest.param(Forgery(trailing=b"\5\0").der(), id="an element after the signature"),
        pytest.param(Forgery(version="020101").der(), id="version 2"),
        pytest.param(Forgery(version="0500").der(), id="no version"),
        *(
            pytest.param(Forgery(spki=form(key), key=key).der(), id=f"{form.__name__} {parity}")
            for form in (compressed, hybrid)
            for parity, key in (("even", EVEN_KEY), ("odd", ODD_KEY))
        ),
        pytest.param(Forgery(key=EVEN_KEY, spki=spare_bit()).der(), id="key with a bit to spare"),
        pytest.param(without_attributes(), id="attributes are absent"),
        pytest.param(Forgery(subject=tlv(SEQUENCE, tlv(SET))).der(), id="empty RDN"),
        pytest.param(Forgery(subject=b"\5\0").der(), id="no subject"),
        pytest.param(Forgery(attributes=(b"\5\0",)).der(), id="attribute is NULL"),
        pytest.param(Forgery(attributes=(extension_request(),)).der(), id="no extensions"),
        pytest.param(
            Forgery(
                attributes=(extension_request(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), FALSE)),)
            ).der(),
            id="explicit default",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(tlv(SEQUENCE, OID_PROVIDER_ID, "0500")),)).der(),
            id="extension is no OCTET STRING",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(extension(OID_SAN, b"\x30\x80\0\0")),)).der(),
            id="SAN is not DER",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(extension(OID_SAN, b"\5\0")),)).der(),
            id="SAN is NULL",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(alt_names(tlv(0x82, b"\xe4"))),)).der(),
            id="DNS name is not ASCII",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(alt_names(tlv(0x87, b"12345"))),)).der(),
            id="IP address of 5 bytes",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(alt_names(tlv(0x89, b"a"))),)).der(),
            id="GeneralName 9",
        ),
        pytest.param(
            Forgery(
                attributes=(extension_request(alt_names(tlv(0xA2, tlv(UTF8, b"worker-1")))),)
            ).der(),
            id="DNS name in parts",
        ),
        pytest.param(
            Forgery(attributes=(extension_request(alt_names(tlv(UTF8, b"a"))),)).der(),
            id="GeneralName is a string",
        ),
    ],
)
def test_p3_encodings_outside_the_profile_are_refused(forged: bytes) -> None:
    with pytest.raises(RequestMalformed):
        parse_pkcs10(forged)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(subject(), id="empty"),
        pytest.param(subject(WORKER), id="no O"),
        pytest.param(subject(rdn(ORGANIZATION)), id="no CN"),
        pytest.param(subject(rdn(ORGANIZATION), rdn(ORGANIZATION), WORKER), id="O twice"),
        pytest.param(subject(rdn(ORGANIZATION), WORKER, WORKER), id="CN twice"),
        pytest.param(subject(rdn(ORGANIZATION), rdn(ORGANIZATION)), id="O twice, no CN"),
        pytest.param(subject(rdn(ORGANIZATION, ORGANIZATION), WORKER), id="O twice in one RDN"),
        pytest.param(subject(rdn(attribute(OID_O, b"system:masters")), WORKER), id="masters"),
        pytest.param(
            subject(rdn(ORGANIZATION), rdn(attribute(OID_O, b"system:masters")), WORKER),
            id="masters as well",
        ),
        pytest.param(subject(rdn(attribute(OID_O, b"System:nodes")), WORKER), id="case of O"),
        pytest.param(subject(rdn(ORGANIZATION), rdn(attribute(OID_CN, b"worker-1"))), id="prefix"),
        pytest.param(
            subject(rdn(ORGANIZATION), rdn(attribute(OID_CN, b"System:node:worker-1"))),
            id="case of CN",
        ),
        pytest.param(
            subject(rdn(ORGANIZATION), WORKER, rdn(attribute("060355040b", b"x"))), id="OU"
        ),
        # Newer API servers use this attribute as the user's UID.
        pytest.param(
            subject(rdn(ORGANIZATION), WORKER, rdn(attribute("06092b0601040183c25302", b"u"))),
            id="UID of Kubernetes",
        ),
        pytest.param(
            subject(rdn(ORGANIZATION), rdn(attribute(OID_CN, b"system:node:worker-1", 0x16))),
            id="IA5String",
        ),
        pytest.param(
            subject(rdn(ORGANIZATION), rdn(attribute(OID_CN, b"system:node:worker-1", 0x14))),
            id="T61String",
        ),
    ],
)
def test_p4_other_subjects_are_refused(name: bytes) -> None:
    with pytest.raises(SubjectNotAllowed):
        parse_pkcs10(Forgery(subject=name).der())


BAD_NAMES = [
    *("", "A", "worker_1", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "a b", "a\n", "a\0"),
    *("wörker", "\u0430", "a/b", "a:b", "a" * 254),
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_p4_other_node_names_are_refused(name: str) -> None:
    forged = Forgery(subject=subject(rdn(ORGANIZATION), rdn(common_name(name.encode()))))
    with pytest.raises(NodeNameInvalid):
        parse_pkcs10(forged.der())
    with pytest.raises(NodeNameInvalid):
        require_node_name(name)


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(
            (tlv(SEQUENCE, "06092a864886f70d010907", tlv(SET, tlv(UTF8, b"x"))),),
            id="challengePassword",
        ),
        pytest.param(
            (
                tlv(SEQUENCE, "06092a864886f70d010907", tlv(SET, tlv(UTF8, b"x"))),
                extension_request(PROVIDER_ID),
            ),
            id="challengePassword as well",
        ),
        pytest.param((extension_request(PROVIDER_ID), extension_request(PROVIDER_ID)), id="twice"),
        pytest.param((tlv(SEQUENCE, OID_EXTENSION_REQUEST, TWO_VALUES),), id="two values"),
        pytest.param((tlv(SEQUENCE, OID_EXTENSION_REQUEST, tlv(SET)),), id="no value"),
    ],
)
def test_p5_other_attributes_are_refused(attributes: tuple[bytes, ...]) -> None:
    with pytest.raises(AttributeNotAllowed):
        parse_pkcs10(Forgery(attributes=attributes).der())


@pytest.mark.parametrize(
    "extensions",
    [
        pytest.param((PROVIDER_ID, PROVIDER_ID), id="provider ID twice"),
        pytest.param((alt_names(), alt_names()), id="SAN twice"),
        pytest.param(
            (PROVIDER_ID, extension(OID_KEY_USAGE, bytes.fromhex("03020780"))), id="key usage"
        ),
        pytest.param(
            (extension("0603551d13", bytes.fromhex("30030101ff"), TRUE), PROVIDER_ID), id="CA"
        ),
    ],
)
def test_p5_other_extensions_are_refused(extensions: tuple[bytes, ...]) -> None:
    with pytest.raises(ExtensionNotAllowed):
        parse_pkcs10(Forgery(attributes=(extension_request(*extensions),)).der())


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            {
                "subject": subject(
                    rdn(ORGANIZATION), rdn(attribute("0403550403", b"system:node:worker-1"))
                )
            },
            id="CN",
        ),
        pytest.param(
            {
                "attributes": (
                    tlv(SEQUENCE, "04" + OID_EXTENSION_REQUEST[2:], tlv(SET, tlv(SEQUENCE))),
                )
            },
            id="extensionRequest",
        ),
        pytest.param(
            {"attributes": (extension_request(extension("04" + OID_SAN[2:], tlv(SEQUENCE))),)},
            id="SAN",
        ),
    ],
)
def test_p3_type_that_is_an_octet_string_is_malformed(changes: dict[str, Any]) -> None:
    """A type is an OBJECT IDENTIFIER. The same bytes in an OCTET STRING are not a type."""
    with pytest.raises(RequestMalformed):
        parse_pkcs10(Forgery(**changes).der())


@pytest.mark.parametrize(
    "provider_id",
    [
        pytest.param(extension(OID_PROVIDER_ID, tlv(UTF8, b"x"), TRUE), id="critical"),
        pytest.param(extension(OID_PROVIDER_ID, b"test:///x"), id="bare"),
        pytest.param(extension(OID_PROVIDER_ID, b""), id="nothing"),
        pytest.param(extension(OID_PROVIDER_ID, tlv(UTF8, b"x") + b"\0"), id="trailing byte"),
        pytest.param(extension(OID_PROVIDER_ID, tlv(PRINTABLE, b"x")), id="PrintableString"),
        pytest.param(extension(OID_PROVIDER_ID, b"\x0c\x81\x01x"), id="long length"),
        pytest.param(extension(OID_PROVIDER_ID, tlv(UTF8, b"\xff")), id="not UTF-8"),
        pytest.param(extension(OID_PROVIDER_ID, tlv(UTF8, b"a b")), id="space"),
    ],
)
def test_p5_other_forms_of_the_provider_id_are_refused(provider_id: bytes) -> None:
    with pytest.raises(ProviderIDMalformed):
        parse_pkcs10(Forgery(attributes=(extension_request(provider_id),)).der())


@pytest.mark.parametrize("text", ["x", "aws:///eu-1/i-0a", "x" * 512, "!~"])
def test_p5_provider_ids_are_accepted(text: str) -> None:
    assert require_provider_id(text) == text


@pytest.mark.parametrize("text", ["", " ", "a b", "a\n", "a\t", "\x7f", "é", "x" * 513])
def test_p5_invalid_provider_ids_are_refused(text: str) -> None:
    with pytest.raises(ProviderIDMalformed):
        require_provider_id(text)


@given(st.data())
def test_changed_requests_are_refused(data: st.DataObject) -> None:
    """The signature covers all other bytes, and each signature has one encoding."""
    at = data.draw(st.integers(0, len(GOOD) - 1))
    changed = GOOD[:at] + data.draw(st.binary(max_size=3)) + GOOD[at + 1 :]
    if changed == GOOD:
        return
    with pytest.raises(AttestationError):
        parse_pkcs10(changed)


FRAGMENTS = st.sampled_from(
    [PROVIDER_ID, alt_names(tlv(0x82, b"a")), ORGANIZATION, WORKER, tlv(SET), b"\5\0", b"\0"]
) | st.binary(max_size=8)


@given(st.lists(FRAGMENTS, max_size=3), st.lists(FRAGMENTS, max_size=3), FRAGMENTS)
def test_signed_nonsense_raises_documented_errors_alone(
    rdns: list[bytes], attributes: list[bytes], value: bytes
) -> None:
    nonsense = extension(OID_PROVIDER_ID, value)
    forged = Forgery(
        subject=subject(*rdns),
        attributes=(*attributes, extension_request(nonsense)),
        key=forgery.KEY,
    )
    with pytest.raises(AttestationError):
        parse_pkcs10(forged.der())
