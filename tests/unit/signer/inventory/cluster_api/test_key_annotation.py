"""The endorsement key annotation: every form, several at once, and no half-read annotation."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from common.formats.pem import encode_block
from common.public_keys import spki_sha256
from signer.inventory.cluster_api import key_annotation
from signer.inventory.cluster_api.key_annotation import (
    NO_ANNOTATION,
    KeyAnnotation,
    read_key_annotation,
)
from tests.builders.software_tpm import rsa_key

KEY = rsa_key()
OTHER = ec.generate_private_key(ec.SECP256R1())
DIGEST = spki_sha256(KEY.public_key())
OTHER_DIGEST = spki_sha256(OTHER.public_key())


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    public = key.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def certificate() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "TPM")])
    now = datetime(2026, 11, 21, tzinfo=UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    return builder.sign(OTHER, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def certificate_of_version_5() -> str:
    """Return a certificate with a version that does not exist."""
    der = x509.load_pem_x509_certificate(certificate().encode()).public_bytes(Encoding.DER)
    changed = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020104"), 1)
    return encode_block("CERTIFICATE", changed).decode()


def read(value: str) -> KeyAnnotation:
    return read_key_annotation(value, "here")


def digests(value: str) -> list[bytes]:
    records = read(value)
    assert records.error is None
    assert {record.source for record in records.keys} == {"here"}
    return [record.spki_sha256 for record in records.keys]


def test_object_without_the_annotation_registers_no_key() -> None:
    assert read_key_annotation(None, "here") is NO_ANNOTATION


@pytest.mark.parametrize(
    "value",
    [
        f"sha256:{DIGEST.hex()}",
        f"sha256:{DIGEST.hex().upper()}",
        pem(KEY),
        pem(KEY).strip(),
        pem(KEY).replace("\n", "\r\n"),
        certificate(),
    ],
    ids=["digest", "upper case", "key", "no final newline", "CRLF", "certificate"],
)
def test_each_form_names_the_same_key(value: str) -> None:
    assert digests(value) == [DIGEST]


def test_compressed_point_is_the_same_key() -> None:
    """An entry with a compressed point registers the same TPM."""
    digest = f"sha256:{OTHER_DIGEST.hex()}"
    assert digests(pem(OTHER)) == digests(digest)


@pytest.mark.parametrize("between", ["\n", " ", ", ", ",\n\n"])
def test_several_entries_are_read(between: str) -> None:
    value = between.join([f"sha256:{OTHER_DIGEST.hex()}", pem(KEY).strip()])
    assert digests(value) == [OTHER_DIGEST, DIGEST]
    assert digests(between.join([certificate(), pem(KEY)])) == [DIGEST]


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "yes",
        f"sha256:{DIGEST.hex()}0",
        f"sha256:{DIGEST.hex()[:-1]}",
        f"sha1:{DIGEST.hex()}",
        DIGEST.hex(),
        f"sha256:{DIGEST.hex()} and more",
        f"sha256:{DIGEST.hex()};sha256:{OTHER_DIGEST.hex()}",
        pem(KEY).replace("PUBLIC KEY", "RSA PUBLIC KEY"),
        pem(KEY).replace("END PUBLIC", "END PRIVATE"),
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        pem(KEY) + "x",
        f"sha256:{DIGEST.hex()} sha256:00",
        pem(ec.generate_private_key(ec.SECP256K1())),
    ],
    ids=count(),
)
def test_malformed_annotation_is_an_error_and_registers_no_key(value: str) -> None:
    """Half of it would register other keys than the operator wrote."""
    records = read(value)
    assert records.keys == ()
    assert records.error is not None
    assert records.error.startswith("here: ")


def test_message_names_the_form_that_can_always_be_read() -> None:
    """OpenSSL's messages do not help an operator; the digest form does."""
    for broken in (
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        certificate_of_version_5(),
        pem(ec.generate_private_key(ec.SECP256K1())),
    ):
        error = read(broken).error
        assert error is not None
        assert error.endswith(" cannot be read: give its key's digest as sha256:<hex>")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is loaded as a key."""
    labels: list[str] = []
    load = key_annotation._public_key

    def record(label: str, encoded: bytes) -> PublicKeyTypes:
        labels.append(label)
        return load(label, encoded)

    monkeypatch.setattr(key_annotation, "_public_key", record)
    return labels


def compressed() -> str:
    """Return a new key whose point OpenSSL has to compute."""
    point = ec.generate_private_key(ec.SECP384R1()).public_key()
    encoded = point.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    prefix = bytes.fromhex("3046301006072a8648ce3d020106052b81040022033200")
    return encode_block("PUBLIC KEY", prefix + encoded).decode()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("".join(compressed() for _ in range(9)), "at most 8 keys"),
        (compressed() * 120, "must not exceed 16384 characters"),
    ],
    ids=["many keys", "long"],
)
def test_annotation_of_many_keys_is_refused_before_any_is_loaded(
    loaded: list[str], value: str, message: str
) -> None:
    """250 KiB of compressed points took 241 ms of the thread of all watches at each change."""
    error = read(value).error
    assert error is not None
    assert message in error
    assert loaded == []


def test_annotation_that_did_not_change_is_not_read_again(loaded: list[str]) -> None:
    """An object is read at each of its changes, its annotation only once."""
    value = "".join(compressed() for _ in range(8))
    assert len(digests(value)) == 8
    assert digests(value) == digests(value)
    assert loaded == ["PUBLIC KEY"] * 8
