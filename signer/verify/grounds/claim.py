"""The TPM already holds the node name for this Machine (E2)."""

from signer.kinds.endorsement_key import TrustBasis
from signer.seams import Inventory
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys, endorsement_key_ground
from signer.verify.machines.claims import is_complete_claim
from signer.verify.machines.machine import VerifiedMachine


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if the endorsement key has the complete claim.

    Counts where the policy needs no record.
    """
    if context.policy.endorsement_key.trust.needs_record:
        return None
    if not has_claim(frozenset({keys.endorsement.name}), machine, context.inventory):
        return None
    return endorsement_key_ground(keys, TrustBasis.FIRST_USE)


def has_claim(names: frozenset[str], machine: VerifiedMachine, inventory: Inventory) -> bool:
    """Return whether one of these keys has the complete claim to this node name and Machine."""
    node = inventory.attested_node(machine.node_name)
    if node is None or node.endorsement_key not in names:
        return False
    claim = inventory.endorsement_key(node.endorsement_key)
    provider_id = machine.machine.provider_id
    return (
        claim is not None
        and claim.held_by is not None
        and is_complete_claim(claim, node)
        and claim.held_by.provider_id == node.provider_id == provider_id
    )
