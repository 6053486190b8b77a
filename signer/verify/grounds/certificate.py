"""A configured authority certifies the key, which is then in a genuine TPM (E2).

It is not known which Machine has that TPM. So the TPM must also have the claim, or be the first one
that comes.
"""

from dataclasses import replace

from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import TrustMode
from signer.verify.context import VerificationContext
from signer.verify.grounds import claim, first_use
from signer.verify.grounds.ground import Ground, PresentedKeys
from signer.verify.machines.machine import VerifiedMachine


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if a certificate of the key is valid. Counts with the trust `Certified`.

    Raises:
        Denied: the certificate fails.
        NodeRefMismatch, OperatorActionRequired: the first claim is not safe here.

    """
    if context.policy.endorsement_key.trust is not TrustMode.CERTIFIED:
        return None
    _ = keys.certificate
    bound = claim.find(keys, machine, context) or first_use.find(keys, machine, context)
    return bound and replace(bound, basis=TrustBasis.CERTIFICATE)
