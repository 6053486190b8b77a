"""Fields of certificates: their values, and the rules for a readable certificate."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from signer.verify.x509.fields import (
    BasicConstraints,
    CertificateFields,
    Extension,
    basic_constraints,
    extended_key_usage,
    extract_certificate,
    key_usage,
    read_fields,
)
from signer.verify.x509.lenient_der import CertificateMalformed
from tests.builders import der
from tests.builders.certificates import EXTENSIONS, SPKI, VALIDITY, leaf, vendor
from tests.builders.software_tpm import rsa_key

ROOT, _ = vendor()
KEY = rsa_key().public_key()
LEAF = leaf(ROOT, KEY)
TBS, ALGORITHM, SIGNATURE = (part.der for part in der.parse(LEAF).children)
PARTS = [part.der for part in der.parse(TBS).children]
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
EXPLICIT_3 = 0xA3


def sequence(*parts: bytes) -> bytes:
    return der.encode(der.SEQUENCE, b"".join(parts))


def certificate(*parts: bytes) -> bytes:
    """Make a certificate of these parts, with an invalid signature."""
    return sequence(sequence(*parts), ALGORITHM, SIGNATURE)


def with_part(place: int, part: bytes) -> CertificateFields:
    return read_fields(certificate(*PARTS[:place], part, *PARTS[place + 1 :]))


def with_extension(*parts: bytes) -> CertificateFields:
    return with_part(EXTENSIONS, der.encode(EXPLICIT_3, sequence(sequence(*parts))))


def test_version_1_certificate_has_no_extensions() -> None:
    fields = read_fields(certificate(*PARTS[1:EXTENSIONS]))
    assert (fields.version, fields.serial, fields.extensions) == (1, 7, {})
    assert read_fields(LEAF).version == 3
    assert (basic_constraints(fields).ca, key_usage(fields), extended_key_usage(fields)) == (
        False,
        None,
        None,
    )


def test_unique_identifiers_are_skipped() -> None:
    """RFC 5280, section 4.1.2.8: they are obsolete."""
    unique = der.encode(0x81, b"\0i") + der.encode(0x82, b"\0s")
    fields = read_fields(certificate(*PARTS[:EXTENSIONS], unique, PARTS[EXTENSIONS]))
    assert fields.extensions == read_fields(LEAF).extensions


TIMES: dict[tuple[int, bytes], datetime] = {
    (UTC_TIME, b"500101000000Z"): datetime(1950, 1, 1, tzinfo=UTC),
    (UTC_TIME, b"991231235959Z"): datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
    (UTC_TIME, b"491231235959Z"): datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
    (GENERALIZED_TIME, b"20500101000000Z"): datetime(2050, 1, 1, tzinfo=UTC),
    (GENERALIZED_TIME, b"99991231235959Z"): datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
}


@pytest.mark.parametrize(("written", "moment"), TIMES.items())
def test_utc_time_and_generalized_time_are_parsed(
    written: tuple[int, bytes], moment: datetime
) -> None:
    """RFC 5280, section 4.1.2.5; some TPMs' certificates have no expiration."""
    time = der.encode(*written)
    fields = with_part(VALIDITY, sequence(time, time))
    assert (fields.not_before, fields.not_after) == (moment, moment)


def identifier(text: str) -> bytes:
    return der.encode(der.OBJECT_IDENTIFIER, bytes.fromhex(text))


def spki(key: bytes, *algorithm: bytes) -> bytes:
    return sequence(sequence(*algorithm), der.encode(der.BIT_STRING, b"\0" + key))


EC_KEY, EC_DH = identifier("2a8648ce3d0201"), identifier("2b8104010c")
P256, BRAINPOOL = identifier("2a8648ce3d030107"), identifier("2b2403030208010107")
RSA_ENCRYPTION, NULL = identifier("2a864886f70d010101"), b"\5\0"
POINT = bytes.fromhex(
    "04"
    "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
KEYS_OF_OTHER_KINDS: dict[str, bytes] = {
    "Ed25519": spki(bytes(32), identifier("2b6570")),
    "for ECDH alone": spki(POINT, EC_DH, P256),
    "of an unsupported curve": spki(POINT, EC_KEY, BRAINPOOL),
    "of a curve in numbers": spki(POINT, EC_KEY, sequence(b"\2\1\1")),
    "of no curve": spki(POINT, EC_KEY),
    "off the curve": spki(POINT[:-1] + b"\0", EC_KEY, P256),
    "of an even exponent": spki(sequence(b"\2\1\x0f", b"\2\1\2"), RSA_ENCRYPTION, NULL),
    "of a modulus alone": spki(sequence(b"\2\1\x0f"), RSA_ENCRYPTION, NULL),
}


@pytest.mark.parametrize("key", KEYS_OF_OTHER_KINDS.values(), ids=KEYS_OF_OTHER_KINDS)
def test_unsupported_key_is_none(key: bytes) -> None:
    """The certificate stays readable, since it may be one of several."""
    assert with_part(SPKI, spki(POINT, EC_KEY, P256)).public_key is not None
    fields = with_part(SPKI, key)
    assert fields.public_key is None


def test_p521_key_is_parsed() -> None:
    """Authorities may have such keys; endorsement keys may not."""
    assert read_fields(LEAF).public_key == KEY
    key = ec.generate_private_key(ec.SECP521R1()).public_key()
    assert read_fields(leaf(ROOT, key)).public_key == key


NAME = identifier("2a0304")
VALUE = der.encode(der.OCTET_STRING, b"value")
FLAGS: dict[str, tuple[bytes, bool]] = {
    "absent": (b"", False),
    "FALSE": (b"\1\1\0", False),
    "TRUE": (b"\1\1\xff", True),
    "TRUE, not of DER": (b"\1\1\1", True),
    "no BOOLEAN": (b"\2\1\1", False),
    "an empty one": (b"\5\0", False),
}


@pytest.mark.parametrize(("flag", "critical"), FLAGS.values(), ids=FLAGS)
def test_criticality_is_parsed(
    flag: bytes,
    critical: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    expected = Extension(critical=critical, value=b"value")
    assert with_extension(NAME, flag, VALUE).extensions == {"1.2.3.4": expected}


def with_value(number: str, value: bytes) -> CertificateFields:
    return with_extension(identifier("551d" + number), der.encode(der.OCTET_STRING, value))


TRUE, LENGTH_3 = b"\1\1\xff", b"\2\1\3"
CONSTRAINTS: dict[str, tuple[tuple[bytes, ...], tuple[bool, int | None]]] = {
    "nothing": ((), (False, None)),
    "an authority": ((TRUE,), (True, None)),
    "an authority, not of DER": ((b"\1\1\1",), (True, None)),
    "explicit default": ((b"\1\1\0",), (False, None)),
    "with a path length": ((TRUE, LENGTH_3), (True, 3)),
    "a path length alone": ((LENGTH_3,), (False, 3)),
    "in another order": ((LENGTH_3, TRUE), (False, 3)),
    "another element after it": ((TRUE, b"\4\1\3"), (True, None)),
    "something else before it": ((b"\4\1\3", TRUE), (False, None)),
}


@pytest.mark.parametrize(("parts", "expected"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_basic_constraints_are_parsed(
    parts: tuple[bytes, ...], expected: tuple[bool, int | None]
) -> None:
    ca, path_length = expected
    read = basic_constraints(with_value("13", sequence(*parts)))
    assert read == BasicConstraints(ca=ca, path_length=path_length)


USAGES: dict[bytes, list[int]] = {
    b"\x03\x02\x07\x80": [0],
    b"\x03\x02\x05\x20": [2],
    b"\x03\x02\x03\x08": [4],
    b"\x03\x02\x01\x06": [5, 6],
    b"\x03\x02\x00\x01": [7],
    b"\x03\x03\x07\x08\x80": [4, 8],
    b"\x03\x03\x07\xff\x80": [*range(9)],
    b"\x03\x02\x00\x00": [],
}


@pytest.mark.parametrize(("value", "expected"), USAGES.items(), ids=str)
def test_key_usage_bits_are_counted_from_the_highest_bit(value: bytes, expected: list[int]) -> None:
    assert key_usage(with_value("0f", value)) == frozenset(expected)


WHOLE = 16 * 1024


def wrapped(size: int) -> bytes:
    """Wrap a SEQUENCE of this size in an OCTET STRING."""
    return der.encode(der.OCTET_STRING, sequence(bytes(size)))


def test_certificate_has_16_kib_at_most() -> None:
    """With every wrapper."""
    longest = sequence(bytes(WHOLE - 4))
    assert extract_certificate(longest + b"\xff") == longest
    assert extract_certificate(wrapped(WHOLE - 8) + b"\xff") == sequence(bytes(WHOLE - 8))


def time(tag: int, text: bytes) -> Callable[[], object]:
    """Read a certificate with this time."""
    return lambda: with_part(VALIDITY, sequence(der.encode(tag, text) * 2))


FORM = "not an X.509 certificate"
MALFORMED: dict[str, tuple[Callable[[], object], str]] = {
    "no fields": (lambda: read_fields(sequence(sequence(), ALGORITHM, SIGNATURE)), FORM),
    "no outer algorithm": (lambda: read_fields(sequence(TBS, sequence(), SIGNATURE)), FORM),
    "no signature": (lambda: read_fields(sequence(TBS, ALGORITHM)), FORM),
    "a part more": (lambda: read_fields(sequence(TBS, ALGORITHM, SIGNATURE, SIGNATURE)), FORM),
    "a time of no zone": (time(GENERALIZED_TIME, b"20261121093000"), FORM),
    "a time of another zone": (time(GENERALIZED_TIME, b"20261121093000+0100"), FORM),
    "a time without seconds": (time(GENERALIZED_TIME, b"202611210930Z"), FORM),
    "a time with fractions": (time(GENERALIZED_TIME, b"20261121093000.5Z"), FORM),
    "a time of no day": (time(GENERALIZED_TIME, b"20260230093000Z"), FORM),
    "a year of two digits": (time(GENERALIZED_TIME, b"261121093000Z"), FORM),
    "a year of four digits": (time(UTC_TIME, b"20261121093000Z"), FORM),
    "an empty RSA key": (lambda: with_part(SPKI, spki(b"", RSA_ENCRYPTION, NULL)), FORM),
    "a number for an RSA key": (
        lambda: with_part(SPKI, spki(b"\2\1\3", RSA_ENCRYPTION, NULL)),
        FORM,
    ),
    "an INTEGER in an extension": (lambda: with_extension(NAME, b"\2\1\1"), FORM),
    "a SEQUENCE in an extension": (lambda: with_extension(NAME, b"\x30\0"), FORM),
    "an extension without a value": (lambda: with_extension(NAME, b""), FORM),
    "over 16 KiB": (lambda: extract_certificate(sequence(bytes(WHOLE - 3))), "ends early"),
    "over 16 KiB, wrapped": (lambda: extract_certificate(wrapped(WHOLE - 7)), "ends early"),
    "a key usage of an INTEGER": (lambda: key_usage(with_value("0f", b"\2\2\5\x20")), "key usage"),
    "a key usage of octets": (lambda: key_usage(with_value("0f", b"\4\2\5\x20")), "key usage"),
    "a key usage of nothing": (lambda: key_usage(with_value("0f", b"\3\0")), "key usage"),
    **{
        f"a certificate of tag {tag:#x}": (
            partial(extract_certificate, der.encode(tag, der.parse(LEAF).content)),
            "no certificate in the data",
        )
        for tag in (0x02, 0x31, 0xA0)
    },
}


@pytest.mark.parametrize(("read", "rule"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_certificate_is_refused(read: Callable[[], object], rule: str) -> None:
    """Parsers may differ, and a time without a zone cannot be compared."""
    assert read_fields(extract_certificate(LEAF)).der == LEAF
    with pytest.raises(CertificateMalformed, match=rule):
        read()
