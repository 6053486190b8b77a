"""An attempt uses the certificate of an earlier one only if a new one would say the same."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from signer.controller.reconcile.withheld_certificates import (
    _MAX_CERTIFICATES,
    WithheldCertificates,
)
from signer.issue.authority import CertificateAuthority
from signer.verify.answer import VerifiedAnswer
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.machines.serving_names import ServingNames
from tests.builders.reconciler import authority
from tests.builders.scenario import Scenario
from tests.harness import pki

CSR = Scenario().answer_csr()
VERIFIED = Scenario().verify_answer()
NOT_AFTER = Scenario().now + timedelta(days=7)


def signed(  # noqa: PLR0913 - one parameter for each input
    certificates: WithheldCertificates,
    name: str,
    *,
    uid: str = "uid-1",
    verified: VerifiedAnswer = VERIFIED,
    issuer: CertificateAuthority | None = None,
    not_after: datetime = NOT_AFTER,
    group: str = "attested:0.1",
) -> str:
    """Return the ID of the certificate for a CSR; a new one is signed with this name as ID."""
    certificate = WithheldCertificate(pem=b"", credential_id=name, not_after=not_after)
    csr = replace(CSR, name=f"csr-{uid}", uid=uid)
    used = certificates.get_or_sign(
        csr, verified, issuer or authority(), not_after, lambda _: certificate, group
    )
    return used.credential_id


def test_attempt_uses_the_certificate_of_an_earlier_one() -> None:
    """Each attempt is some seconds later."""
    certificates = WithheldCertificates()
    assert signed(certificates, "first") == "first"
    assert signed(certificates, "second", not_after=NOT_AFTER + timedelta(seconds=9)) == "first"


def other_authority() -> CertificateAuthority:
    other = pki.Authority.make("workload", pki.ec_key())
    return CertificateAuthority(certificate=other.certificate, private_key=other.key)


def other_node() -> VerifiedAnswer:
    return replace(VERIFIED, holder=VERIFIED.holder.replace(node_name="other"))


@pytest.mark.parametrize(
    "change",
    [
        {"uid": "uid-2"},
        {"issuer": other_authority()},
        {"not_after": NOT_AFTER - timedelta(seconds=1)},
        {"group": "attested:0.2"},
        {"verified": other_node()},
        {"verified": replace(VERIFIED, public_key=pki.ec_key().public_key())},
        {"verified": replace(VERIFIED, serving_names=ServingNames(dns=("a",), addresses=()))},
    ],
    ids=["CSR", "authority", "shorter lifetime", "group", "node", "public key", "serving names"],
)
def test_attempt_signs_again_if_the_certificate_would_differ(change: dict[str, object]) -> None:
    """A hostile API server may give two CSRs one UID."""
    certificates = WithheldCertificates()
    assert signed(certificates, "first") == "first"
    assert signed(certificates, "second", **change) == "second"  # type: ignore[arg-type]


def test_certificate_of_a_csr_that_waits_no_longer_is_forgotten() -> None:
    certificates = WithheldCertificates()
    signed(certificates, "first")
    certificates.forget("csr-uid-1")
    certificates.forget("unknown")
    assert signed(certificates, "second") == "second"


def test_number_of_certificates_is_bounded() -> None:
    certificates = WithheldCertificates()
    for number in range(_MAX_CERTIFICATES + 1):
        signed(certificates, "first", uid=str(number))
    assert signed(certificates, "second", uid=str(_MAX_CERTIFICATES)) == "first"
    assert signed(certificates, "second", uid="0") == "second"
