"""The policies of endorsement keys that are explored."""

from enum import Enum
from typing import Final

from signer.policy import CertificateNameRules, EndorsementKeyRules, TrustMode

NAMES: Final = "certificateNames"
_SCHEME: Final = "model"


class Mode(Enum):
    """The trust modes, and the policy under which certificates name machines."""

    REGISTERED = TrustMode.REGISTERED.value
    CERTIFIED = TrustMode.CERTIFIED.value
    CERTIFICATE_NAMES = NAMES
    REGISTERED_AND_CERTIFIED = TrustMode.REGISTERED_AND_CERTIFIED.value
    FIRST_USE = TrustMode.FIRST_USE.value

    @property
    def rules(self) -> EndorsementKeyRules:
        """Return what the policy says of endorsement keys."""
        if self is Mode.CERTIFICATE_NAMES:
            names = CertificateNameRules(domain_uuid_schemes=frozenset({_SCHEME}))
            return EndorsementKeyRules(trust=TrustMode.CERTIFIED, certificate_names=names)
        return EndorsementKeyRules(trust=TrustMode(self.value))

    @property
    def needs_record(self) -> bool:
        """Whether an operator must have registered the key."""
        return self.rules.trust.needs_record
