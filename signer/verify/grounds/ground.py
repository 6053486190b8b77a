"""What a ground of trust is given, and what it returns (E2)."""

from dataclasses import dataclass
from functools import cached_property

from common.evidence import TpmKeys
from signer.kinds.endorsement_key import TrustBasis
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey
from signer.verify.attestation.quoted_pcrs import Pcrs
from signer.verify.context import VerificationContext
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.fields import CertificateFields


@dataclass(frozen=True, kw_only=True)
class PresentedKeys:
    """The keys of a TPM after A1 and E1, and what speaks for them."""

    endorsement: EndorsementKey
    attestation: AttestationKey
    evidence: TpmKeys
    pcrs: Pcrs | None
    """Values that the attestation key quoted (Q3); `None` on an offer, which has no quote yet."""
    context: VerificationContext

    @cached_property
    def certificate(self) -> CertificateFields:
        """The endorsement certificate, verified up to an authority of the policy when it is needed.

        Raises as `verify_endorsement_certificate`.
        """
        rules = self.context.policy.endorsement_key
        return verify_endorsement_certificate(
            self.evidence.ek_certificates,
            self.endorsement.public_key,
            anchors=self.context.anchors,
            now=self.context.now,
            allow_without_usage=rules.allow_certificates_without_usage,
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of the EndorsementKeys of both keys."""
        return frozenset({self.endorsement.name, self.attestation.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Why keys are trusted for a Machine, and which of them."""

    basis: TrustBasis
    key: EndorsementKey | AttestationKey
    """The trusted key. Its EndorsementKey object is claimed, banned, released and replaced."""
    names: frozenset[str]
    """The EndorsementKey objects of this key, and of other keys of the same TPM that are known.

    A ban or a release of any one counts, and so does a claim that another node has by it.
    """


def endorsement_key_ground(keys: PresentedKeys, basis: TrustBasis) -> Ground:
    """Return the ground that the endorsement key itself is trusted."""
    return Ground(basis=basis, key=keys.endorsement, names=keys.names)
