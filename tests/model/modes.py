"""The policies of endorsement keys that are explored."""

from enum import Enum
from typing import Final

from signer.policy.policy import (
    AttestationKeyRules,
    CertificateNameRules,
    EndorsementKeyRules,
    TrustMode,
    UnnamedCertificates,
)

NAMES: Final = "certificateNames"
CERTIFIED_KEYS: Final = "attestationKey"
_SCHEME: Final = "model"


class Mode(Enum):
    """The trust modes, and the two policies under which a platform names machines."""

    REGISTERED = TrustMode.REGISTERED.value
    CERTIFIED = TrustMode.CERTIFIED.value
    CERTIFICATE_NAMES = NAMES
    ATTESTATION_KEYS = CERTIFIED_KEYS
    REGISTERED_AND_CERTIFIED = TrustMode.REGISTERED_AND_CERTIFIED.value
    FIRST_USE = TrustMode.FIRST_USE.value

    @property
    def rules(self) -> EndorsementKeyRules:
        """Return what the policy says of endorsement keys."""
        if self is Mode.CERTIFICATE_NAMES:
            names = CertificateNameRules(
                domain_uuid_schemes=frozenset({_SCHEME}), unnamed=UnnamedCertificates.ACCEPT
            )
            return EndorsementKeyRules(trust=TrustMode.CERTIFIED, certificate_names=names)
        if self is Mode.ATTESTATION_KEYS:
            return EndorsementKeyRules(trust=TrustMode.REGISTERED)
        return EndorsementKeyRules(trust=TrustMode(self.value))

    @property
    def attestation_key_rules(self) -> AttestationKeyRules:
        """Return what the policy says of attestation keys."""
        authorities = ("platform",) if self is Mode.ATTESTATION_KEYS else ()
        return AttestationKeyRules(certificate_authorities=authorities)

    @property
    def has_names(self) -> bool:
        """Whether a platform names machines, so that operators register no keys."""
        return self in {Mode.CERTIFICATE_NAMES, Mode.ATTESTATION_KEYS}

    @property
    def needs_record(self) -> bool:
        """Whether an operator must have registered the key."""
        return self.rules.trust.needs_record and not self.has_names
