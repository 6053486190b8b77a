"""Names of machines in real endorsement certificates; tests/attacks refuses the altered ones."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from signer.errors import EndorsementCertificateNotAllowed, EndorsementCertificateOfOtherMachine
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
    """Verify a certificate for the key that it certifies."""
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


@pytest.mark.parametrize("file", REAL)
def test_a_policy_without_rules_on_names_reads_none(file: str, anchors: TrustAnchors) -> None:
    assert verify_machine_name(verified(file, anchors), "test://1", CertificateNameRules()) is None


@pytest.mark.parametrize("file", [path.name for path in sorted(NAMED.glob("*_sign_cert.der"))])
def test_the_certificate_of_an_attestation_key_is_refused(file: str, anchors: TrustAnchors) -> None:
    with pytest.raises(EndorsementCertificateNotAllowed):
        verified(file, anchors)


def test_a_scheme_counts_only_if_the_policy_names_it(anchors: TrustAnchors) -> None:
    leaf = verified("swtpm-ek-named.der", anchors)
    rules = replace(RULES, domain_uuid_schemes=frozenset({"kubevirt"}))
    with pytest.raises(EndorsementCertificateOfOtherMachine):
        verify_machine_name(leaf, f"openstack:///{UUID}", rules)
