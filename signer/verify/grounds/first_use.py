"""The first key that comes for a fresh Machine (E2)."""

from signer.errors import OperatorActionRequired
from signer.kinds.endorsement_key import TrustBasis
from signer.kinds.machine import Machine
from signer.seams import Inventory
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys, endorsement_key_ground
from signer.verify.machines.machine import VerifiedMachine
from signer.verify.requests.request import BOOTSTRAP_USER_PREFIX, ENTRY_USER, BootstrapRequester


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if a first claim is safe. Counts where the policy needs no record.

    Raises `NodeRefMismatch` or `OperatorActionRequired`: it is not safe here.
    """
    if context.policy.endorsement_key.trust.needs_record:
        return None
    _require_safe_first_claim(machine, context.inventory)
    return endorsement_key_ground(keys, TrustBasis.FIRST_USE)


def _require_safe_first_claim(verified: VerifiedMachine, inventory: Inventory) -> None:
    """Require a bootstrapper with a credential for this Machine, which has no Node yet."""
    if verified.alarms:  # (M6)
        raise verified.alarms[0]
    machine, requester = verified.machine, verified.requester
    if not isinstance(requester, BootstrapRequester):
        raise OperatorActionRequired("a first claim without a record needs a bootstrap credential")
    if machine.node_ref is not None or inventory.node(verified.node_name) is not None:
        raise OperatorActionRequired("the Machine has a Node already: register its endorsement key")
    if requester.username == ENTRY_USER:
        raise OperatorActionRequired(
            "a first claim without a record needs another bootstrap credential than the cluster's"
            " entry credential"
        )
    _require_own_token(machine, requester)


def _require_own_token(machine: Machine, requester: BootstrapRequester) -> None:
    """Where the Machine's bootstrap configuration owns a token, accept no other token."""
    token = machine.bootstrap_token_id
    if token is not None and requester.username != BOOTSTRAP_USER_PREFIX + token:
        raise OperatorActionRequired(
            "the bootstrap token is not the one that was made for this Machine"
        )
