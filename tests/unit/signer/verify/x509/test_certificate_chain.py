"""Certificate chains: rules that OpenSSL does not check, also for leaves with OAEP keys."""

from collections.abc import Mapping

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from signer.errors import (
    EndorsementCertificateNotAllowed,
    EndorsementCertificateRevoked,
    EndorsementCertificateUntrusted,
)
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.builders.certificates import NOW, anchors, authority, leaf, revocation_list
from tests.builders.software_tpm import rsa_key

RSA_ENCRYPTION, OAEP, SHA1, SHA256, SHA384 = (
    bytes.fromhex(f"06092a864886f70d0101{last}") for last in ("01", "07", "05", "0b", "0c")
)
"""Object identifiers of equal length, so that one can replace another."""

ROOT = authority("Vendor Root CA", key=rsa_key(number=2))
BELOW = authority("Vendor TPM CA 01", ROOT, key=rsa_key(number=3))
KEY = rsa_key().public_key()

KINDS: dict[str, Mapping[bytes, bytes]] = {
    "ordinary key": {},
    "OAEP key": {RSA_ENCRYPTION: OAEP},
}


def signed_anew(
    certificate: bytes,
    key: object,
    changes: Mapping[bytes, bytes],
    digest: hashes.SHA1 | hashes.SHA256 | None = None,
) -> bytes:
    """Change the signed part and the outer algorithm, and sign again with an RSA key."""
    assert isinstance(key, rsa.RSAPrivateKey)
    read = x509.load_der_x509_certificate(certificate)
    tbs, unsigned = read.tbs_certificate_bytes, certificate[: -len(read.signature)]
    for old, new in changes.items():
        tbs, unsigned = tbs.replace(old, new), unsigned.replace(old, new)
    return unsigned + key.sign(tbs, padding.PKCS1v15(), digest or hashes.SHA256())


def verify(*certificates: bytes, lists: tuple[bytes, ...] = ()) -> None:
    """Verify certificates from a TPM against the root."""
    configured = anchors(ROOT, lists=lists)
    verify_endorsement_certificate(certificates, KEY, anchors=configured, now=NOW)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_authority_signed_with_sha1_is_refused(
    kind: Mapping[bytes, bytes],
) -> None:
    """An attacker can have one of two colliding certificates signed."""
    certificate = signed_anew(leaf(BELOW, KEY), BELOW.key, kind)
    verify(certificate, BELOW.der)
    old = signed_anew(BELOW.der, ROOT.key, {SHA256: SHA1}, hashes.SHA1())  # noqa: S303
    with pytest.raises(EndorsementCertificateNotAllowed, match="SHA-256 or better"):
        verify(certificate, old)


def test_signature_of_a_root_may_use_any_algorithm() -> None:
    """A root is trusted by configuration. Vendors' oldest roots are signed with SHA-1."""
    old = signed_anew(ROOT.der, ROOT.key, {SHA256: SHA1}, hashes.SHA1())  # noqa: S303
    configured = load_trust_anchors({"root.der": old}, {})
    verify_endorsement_certificate([leaf(ROOT, KEY)], KEY, anchors=configured, now=NOW)


@pytest.mark.parametrize("outer", [SHA384, RSA_ENCRYPTION], ids=["SHA-384", "no digest"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_outer_signature_algorithm_must_be_the_signed_one(
    kind: Mapping[bytes, bytes], outer: bytes
) -> None:
    """Also for OAEP keys, where OpenSSL does not compare the two."""
    certificate = signed_anew(leaf(BELOW, KEY), BELOW.key, kind)
    before, separator, after = certificate.rpartition(SHA256)
    assert separator
    with pytest.raises(EndorsementCertificateNotAllowed, match="SHA-256 or better"):
        verify(before + outer + after, BELOW.der)


@pytest.mark.parametrize("number", ["00", "02"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_issuer_is_found_by_name_and_key(kind: Mapping[bytes, bytes], number: str) -> None:
    """An authority with the same key and another name is not the issuer."""
    certificate = signed_anew(leaf(BELOW, KEY), BELOW.key, kind)
    other = authority(f"Vendor TPM CA {number}", ROOT, key=rsa_key(number=3))
    with pytest.raises(EndorsementCertificateUntrusted):
        verify(certificate, other.der)
    verify(certificate, other.der, BELOW.der)


def test_revocation_list_is_matched_by_key_alone() -> None:
    certificate = leaf(BELOW, KEY)
    serial = x509.load_der_x509_certificate(certificate).serial_number
    same_key = authority("Vendor TPM CA 02", ROOT, key=rsa_key(number=3))
    same_name = authority("Vendor TPM CA 01", ROOT, key=rsa_key(number=4))
    for issuer in (BELOW, same_key):
        with pytest.raises(EndorsementCertificateRevoked):
            verify(certificate, BELOW.der, lists=(revocation_list(issuer, serial),))
    verify(certificate, BELOW.der, lists=(revocation_list(same_name, serial),))
