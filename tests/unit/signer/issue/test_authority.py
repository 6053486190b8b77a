"""I1: what a Secret must hold to be a certificate authority."""

import base64
from math import gcd
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtensionOID

from common.formats.pem import encode_block
from signer.errors import AuthorityUnavailable
from signer.issue.authority import parse_authority
from tests.builders.der import INTEGER, SEQUENCE, encode
from tests.builders.software_tpm import rsa_key
from tests.harness import pki

E = 65537


def pair(key: pki.PrivateKey | None = None) -> dict[str, bytes]:
    created = pki.Authority.make("workload", key or pki.ec_key()).pair
    return {"tls.crt": created.certificate, "tls.key": created.key}


def rsa_pair(p: int, q: int, /, **changed: int) -> dict[str, bytes]:
    """Return a pair of an RSA key whose factors may be anything, with some numbers changed.

    As DER of PKCS #1 (RFC 8017, annex A.1.2), since no library writes such keys.
    """
    d = pow(E, -1, (p - 1) * (q - 1))
    private = {"d": d, "p": p, "q": q, "dmp1": d % (p - 1), "dmq1": d % (q - 1)}
    numbers = {"version": 0, "n": p * q, "e": E} | private | {"iqmp": pow(q, -1, p)} | changed
    content = b"".join(
        encode(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))
        for value in numbers.values()
    )
    text = base64.encodebytes(encode(SEQUENCE, content))
    key = b"-----BEGIN RSA PRIVATE KEY-----\n" + text + b"-----END RSA PRIVATE KEY-----\n"
    public = rsa.RSAPublicNumbers(E, p * q).public_key()
    return {"tls.crt": certificate_of(public), "tls.key": key}


def certificate_of(
    key: rsa.RSAPublicKey | ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey,
    *extensions: x509.ExtensionType,
) -> bytes:
    """Return a certificate for a key that need not be able to sign."""
    signer = pki.ec_key()
    template = pki.Authority.make("workload", signer).certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(template.subject)
        .issuer_name(template.issuer)
        .public_key(key)
        .serial_number(template.serial_number)
        .not_valid_before(template.not_valid_before_utc)
        .not_valid_after(template.not_valid_after_utc)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


def composites(bits: int) -> tuple[int, int]:
    """Return two odd numbers of this size that are not prime, and fit an RSA key otherwise."""
    random = Random(bits)

    def multiple(of: int) -> int:
        while True:
            number = (random.getrandbits(bits) | (3 << (bits - 2)) | 1) // of * of
            if number % 2 and (number - 1) % E:
                return number

    p = q = multiple(3)
    while gcd(p, q) > 1:
        q = multiple(5)
    return p, q


@pytest.mark.parametrize("key", [pki.ec_key(), rsa_key()])
def test_authorities_as_kubeadm_makes_them_are_accepted(key: pki.PrivateKey) -> None:
    authority = parse_authority(pair(key))
    assert authority.certificate.public_key() == key.public_key()
    assert "PrivateKey" not in repr(authority)


def test_the_first_certificate_of_a_chain_is_the_authority() -> None:
    data = pair()
    older = pair()["tls.crt"]
    authority = parse_authority({**data, "tls.crt": data["tls.crt"] + older})
    assert authority.certificate.public_key() == authority.private_key.public_key()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_a_secret_without_certificate_or_key_is_refused(missing: str) -> None:
    """The Secret of an external authority has no key."""
    for data in ({**pair(), missing: b""}, {k: v for k, v in pair().items() if k != missing}):
        with pytest.raises(AuthorityUnavailable, match="lacks"):
            parse_authority(data)


@pytest.mark.parametrize("key", [pki.ec_key(), rsa_key()])
def test_a_key_of_another_pair_is_refused(key: pki.PrivateKey) -> None:
    """An operator who replaces certificate and key in two steps writes such a Secret in between."""
    with pytest.raises(AuthorityUnavailable, match="not that of its certificate"):
        parse_authority({**pair(key), "tls.key": pair()["tls.key"]})


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_an_unreadable_entry_is_refused(broken: str) -> None:
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({**pair(), broken: b"-----BEGIN NOTHING-----"})


def test_an_encrypted_key_is_refused() -> None:
    key = pki.ec_key()
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({**pair(key), "tls.key": encrypted})


def test_a_key_of_an_unsupported_type_is_refused() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(AuthorityUnavailable, match="not that of its certificate"):
        parse_authority({**pair(), "tls.key": text})
    certificate = certificate_of(key.public_key())
    with pytest.raises(AuthorityUnavailable, match="neither RSA nor ECDSA"):
        parse_authority({"tls.crt": certificate, "tls.key": text})


def test_an_authority_key_over_4096_bits_is_refused_before_it_is_loaded() -> None:
    """Loading and checking one of 19,630 bits blocked every thread for 108 s."""
    data = rsa_pair(*composites(2056))
    with pytest.raises(AuthorityUnavailable, match="over 4096 bits"):
        parse_authority({**data, "tls.key": b"not even a key"})


@pytest.mark.parametrize(("entry", "limit"), [("tls.crt", 32 * 1024), ("tls.key", 8 * 1024)])
def test_an_authority_entry_that_is_too_large_is_refused_unparsed(entry: str, limit: int) -> None:
    data = pair()
    data[entry] += b"\n" * (limit - len(data[entry]))
    parse_authority(data)
    with pytest.raises(AuthorityUnavailable, match="too large"):
        parse_authority({**data, entry: data[entry] + b"\n"})


@pytest.mark.parametrize(
    ("oid", "value"),
    [
        (ExtensionOID.SUBJECT_KEY_IDENTIFIER, b"\xff"),
        # An X.400 address, which the library does not know.
        (ExtensionOID.SUBJECT_ALTERNATIVE_NAME, bytes.fromhex("3004a3020500")),
    ],
)
def test_an_authority_with_an_unreadable_extension_is_refused(
    oid: x509.ObjectIdentifier, value: bytes
) -> None:
    """Otherwise each certificate would fail with an error of the library."""
    key = pki.ec_key()
    certificate = certificate_of(key.public_key(), x509.UnrecognizedExtension(oid, value))
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({"tls.crt": certificate, "tls.key": pki.key_pem(key)})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a003020102", "a003020105"),  # version 6
        ("2a8648ce3d030107", "2a8648ce3d030102"),  # the curve prime192v2
        ("0603551d0e", "0603551d0f"),  # a second key usage in place of the key identifier
    ],
)
def test_an_authority_certificate_that_the_library_refuses_is_unreadable(
    old: str, new: str
) -> None:
    data = pair()
    der = x509.load_pem_x509_certificate(data["tls.crt"]).public_bytes(Encoding.DER)
    changed = encode_block("CERTIFICATE", der.replace(bytes.fromhex(old), bytes.fromhex(new)))
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({**data, "tls.crt": changed})


@pytest.mark.parametrize("bits", [1024, 2048])
def test_an_authority_key_is_not_tested_for_primes_but_for_its_signature(bits: int) -> None:
    """The test for primes takes 0.35 s for 4096 bits; a wrong signature shows the same."""
    p, q = composites(bits)
    assert (p * q).bit_length() == 2 * bits
    with pytest.raises(AuthorityUnavailable, match="not that of its certificate"):
        parse_authority(rsa_pair(p, q))


def test_an_authority_key_with_a_factor_that_no_prime_can_be_is_refused() -> None:
    """OpenSSL computes modulo each factor, which must be odd, and over 1."""
    key = rsa_key().private_numbers()
    for data in (
        rsa_pair(key.p, key.q, p=1, q=key.p * key.q),
        rsa_pair((1 << 1023) + 2, key.q),
    ):
        with pytest.raises(AuthorityUnavailable, match="do not belong together"):
            parse_authority(data)


@pytest.mark.parametrize("changed", ["d", "dmp1", "dmq1", "iqmp"])
def test_an_authority_key_whose_parts_do_not_fit_is_refused(changed: str) -> None:
    """OpenSSL would compute with exponents of any size."""
    key = rsa_key().private_numbers()
    parse_authority(rsa_pair(key.p, key.q))
    data = rsa_pair(key.p, key.q, **{changed: getattr(key, changed) + (1 << 8192)})
    with pytest.raises(AuthorityUnavailable, match="do not belong together"):
        parse_authority(data)
