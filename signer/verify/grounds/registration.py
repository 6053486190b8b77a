"""A record, which an operator or an infrastructure provider wrote, names the key (E2)."""

from signer.errors import EndorsementKeyMismatch, EndorsementKeyRegistrationInvalid
from signer.kinds.endorsement_key import TrustBasis
from signer.verify.context import VerificationContext
from signer.verify.grounds.claim import has_claim
from signer.verify.grounds.ground import Ground, PresentedKeys, endorsement_key_ground
from signer.verify.machines.machine import VerifiedMachine
from signer.verify.machines.registered_keys import is_name_registered_to_other_key, registered_keys


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if a record names the key for this Machine. Counts with every trust.

    A record that cannot be read may name this key or another one: it counts as neither.

    Raises:
        EndorsementKeyMismatch: records name other keys only, for the Machine, or for the node name
            that the TPM would claim first.
        EndorsementKeyRegistrationInvalid: a record cannot be read, and no other names the key.

    """
    inventory, key, node_name = context.inventory, keys.endorsement.name, machine.node_name
    if is_name_registered_to_other_key(
        key, machine.machine, node_name, inventory
    ) and not has_claim(keys.names, machine, inventory):
        raise EndorsementKeyMismatch("another endorsement key is registered for this node name")
    registered = registered_keys(machine.machine, node_name, inventory)
    if key in registered:
        return endorsement_key_ground(keys, TrustBasis.REGISTERED)
    if machine.machine.registered_keys_error is not None:
        raise EndorsementKeyRegistrationInvalid(
            "the endorsement key record of this Machine cannot be read",
            detail=machine.machine.registered_keys_error,
        )
    if registered:
        raise EndorsementKeyMismatch("another endorsement key is registered for this Machine")
    return None
