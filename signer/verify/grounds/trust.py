"""Decides which key of the TPM is trusted for this Machine, and on what ground (E2).

Source: docs/protocol.md section 5, "E2, grounds of trust".
"""

from typing import Final

from signer.errors import EndorsementKeyNotRegistered
from signer.verify.context import VerificationContext
from signer.verify.grounds import (
    certificate,
    certificate_name,
    claim,
    first_use,
    platform_answer,
    quote_of_vm,
    registration,
)
from signer.verify.grounds.ground import Ground, PresentedKeys
from signer.verify.machines.machine import VerifiedMachine

GROUNDS: Final = (
    registration.find,
    platform_answer.find,
    quote_of_vm.find,
    certificate_name.find,
    certificate.find,
    claim.find,
    first_use.find,
)
"""In the order of their rank."""


def verify_endorsement_trust(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground:
    """Return the first ground that there is; where the policy needs a certificate, check it too.

    Raises what the grounds raise, and `EndorsementKeyNotRegistered`: there is no ground.
    """
    ground = next(filter(None, (find(keys, machine, context) for find in GROUNDS)), None)
    if ground is None:
        raise EndorsementKeyNotRegistered("no endorsement key is registered for this Machine")
    if context.policy.endorsement_key.trust.needs_certificate:
        _ = keys.certificate
    return ground
