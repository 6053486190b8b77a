"""Names of machines in real endorsement certificates, and the same with one field altered."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import AttestationError
from signer.errors import (
    EndorsementCertificateMismatch,
    EndorsementCertificateNotAllowed,
    EndorsementCertificateOfOtherMachine,
    EndorsementCertificateOutOfDate,
    EndorsementCertificateUntrusted,
)
from signer.policy.policy import CertificateNameRules
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.fields import CertificateFields, read_fields
from signer.verify.x509.machine_names import verify_machine_name
from signer.verify.x509.trust_anchors import TrustAnchors, load_trust_anchors

NAMED = Path(__file__).parents[4] / "vectors" / "named"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
PROJECT = "google.com:wuale-gcp-testing"
PLACE = f"gce://{PROJECT}/us-central1-a"
UUID = "5f0b6a3e-1d2c-4c1b-9a5e-3b1f0c2d4e5f"
RULES = CertificateNameRules(
    gce_projects=frozenset({PROJECT}), domain_uuid_schemes=frozenset({"openstack"})
)
REAL = {
    "gce-pca_tpm_rsa_enc_cert.der": f"{PLACE}/cs-debug-pca",
    "gce-pca_tpm_ecc_enc_cert.der": f"{PLACE}/cs-debug-pca",
    "gce-uca_tpm_rsa_enc_cert.der": f"{PLACE}/cs-debug",
    "gce-uca_tpm_ecc_enc_cert.der": f"{PLACE}/cs-debug",
    "swtpm-ek-named.der": f"openstack:///{UUID}",
    "swtpm-ek-ecc-named.der": f"openstack:///{UUID}",
}


@pytest.fixture(scope="module")
def anchors() -> TrustAnchors:
    """Configure the authorities of Google, and those of swtpm_localca."""
    files = [
        path for path in sorted(NAMED.iterdir()) if "-ca-" in path.name or "swtpm-" in path.name
    ]
    return load_trust_anchors(
        {path.name: path.read_bytes() for path in files if path.suffix != ".der"}, {}
    )


def verified(file: str, anchors: TrustAnchors) -> CertificateFields:
    der = (NAMED / file).read_bytes()
    key = read_fields(der).public_key
    assert key is not None
    return verify_endorsement_certificate([der], key, anchors=anchors, now=NOW)


@pytest.mark.parametrize("file", REAL)
def test_a_real_certificate_names_its_machine(file: str, anchors: TrustAnchors) -> None:
    leaf = verified(file, anchors)
    name = verify_machine_name(leaf, REAL[file], RULES)
    assert name == REAL[file].removeprefix("openstack:///")
    with pytest.raises(EndorsementCertificateOfOtherMachine):
        verify_machine_name(leaf, REAL[file] + "0", RULES)


def flipped(content: bytes, part: bytes) -> bytes:
    """Return the content with another last bit of this part."""
    end = content.index(part) + len(part) - 1
    return content[:end] + bytes([content[end] ^ 1]) + content[end + 1 :]


FIELDS = {
    "zone": b"us-central1-a",
    "project": PROJECT.encode(),
    "instance": b"cs-debug",
    "domain": UUID.encode(),
    "purpose": b"\x67\x81\x05\x08\x01",
}
USAGE = (
    EndorsementCertificateNotAllowed,
    "its extended key usage must be that",
)
FORGED = EndorsementCertificateUntrusted, "does not lead to a configured authority"
ALTERED = [
    (file, field, USAGE if field == "purpose" else FORGED)
    for file in REAL
    for field, content in FIELDS.items()
    if content in (NAMED / file).read_bytes()
]


@pytest.mark.parametrize(("file", "field", "reason"), ALTERED)
def test_a_real_certificate_with_one_field_altered_is_refused(
    file: str, field: str, reason: tuple[type[AttestationError], str], anchors: TrustAnchors
) -> None:
    der = (NAMED / file).read_bytes()
    altered, key = flipped(der, FIELDS[field]), read_fields(der).public_key
    assert key is not None
    with pytest.raises(reason[0], match=reason[1]):
        verify_endorsement_certificate([altered], key, anchors=anchors, now=NOW)


@pytest.mark.parametrize("file", REAL)
def test_a_real_certificate_with_another_signature_key_or_time_is_refused(
    file: str, anchors: TrustAnchors
) -> None:
    der = (NAMED / file).read_bytes()
    key = read_fields(der).public_key
    assert key is not None
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for altered, now, reason in (
        (flipped(der, der), NOW, EndorsementCertificateUntrusted),
        (flipped(der, spki[:-8]), NOW, EndorsementCertificateMismatch),
        (der, NOW.replace(year=2000), EndorsementCertificateOutOfDate),
    ):
        with pytest.raises(reason):
            verify_endorsement_certificate([altered], key, anchors=anchors, now=now)


@pytest.mark.parametrize("file", REAL)
def test_a_policy_without_rules_on_names_reads_none(file: str, anchors: TrustAnchors) -> None:
    assert verify_machine_name(verified(file, anchors), "test://1", CertificateNameRules()) is None


@pytest.mark.parametrize("file", [path.name for path in sorted(NAMED.glob("*_sign_cert.der"))])
def test_the_certificate_of_an_attestation_key_is_refused(file: str, anchors: TrustAnchors) -> None:
    with pytest.raises(EndorsementCertificateNotAllowed):
        verified(file, anchors)
