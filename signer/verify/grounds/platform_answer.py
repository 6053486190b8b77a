"""The platform of the policy gives the key for the Machine's instance (E2).

It is asked about Machines without any record: a registration by an operator needs no platform, and
no platform can contradict it. Source: docs/decisions/0040-endorsement-keys-from-platforms.md.
"""

from signer.errors import EndorsementKeyMismatch
from signer.kinds.endorsement_key import TrustBasis
from signer.seams import PlatformAnswer
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys
from signer.verify.machines.machine import VerifiedMachine


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if the platform gives the key. Counts if the policy names a platform.

    Raises:
        EndorsementKeyMismatch: the platform gives other keys.
        PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed, PlatformAnswerPending:
            the platform may know this key, and has not answered.

    """
    key, given = keys.endorsement, ask(keys, machine, context).endorsement_keys
    if not given:
        return None
    if key.name not in given:
        raise EndorsementKeyMismatch("the platform gives another endorsement key for this Machine")
    return Ground(basis=TrustBasis.REGISTERED, key=key, names=keys.names | given)


def ask(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> PlatformAnswer:
    """Return what the annotation with the VM ID says about the Machine, else the platform."""
    rules, vm_id = context.policy.endorsement_key.platform, machine.machine.vm_id
    if vm_id is not None or rules is None:
        return PlatformAnswer(vm_id=vm_id)
    namespace = context.inventory.cluster().key.namespace
    provider_id, expected = machine.machine.provider_id, keys.endorsement.name
    return context.platforms.answer(namespace, provider_id, rules, expected=expected)
