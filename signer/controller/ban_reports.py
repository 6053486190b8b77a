"""Reports the ban of a TPM on the Machine whose node has it.

A ban is an object that an operator wrote, so unlike a request it may end a condition that is True.
"""

from collections.abc import Callable
from typing import Final

from signer.errors import EndorsementKeyBanned
from signer.inventory.caches import ManagementCaches
from signer.inventory.machine_status import MachineCondition
from signer.model import ClusterKey, attested_node_name

MESSAGE: Final = "the endorsement key is banned"


def note_bans(
    caches: ManagementCaches,
    note: Callable[[MachineCondition], None],
    serves: Callable[[ClusterKey], bool],
) -> None:
    """Note the ban of every key that still has the claim to a node, for the node's Machine.

    Notes nothing for the Clusters of other replicas (`serves`). Raises `ApiServerUnavailable`
    until the caches are filled.
    """
    for key in caches.keys.by_index("banned", True):  # noqa: FBT003 - the only key of the index
        holder = key.held_by
        if holder is None or not serves(holder.cluster):
            continue
        name = attested_node_name(holder.cluster, holder.node_name)
        node = caches.nodes.get(f"{holder.cluster.namespace}/{name}")
        if node is None or node.endorsement_key != key.name:
            # Another TPM has claimed the node name, for example after `replace`.
            continue
        for machine in caches.machines.by_index("provider ID", (node.cluster, node.provider_id)):
            if machine.name == node.machine_name:
                note(
                    MachineCondition(
                        namespace=machine.cluster.namespace,
                        name=machine.name,
                        uid=machine.uid,
                        attested=False,
                        reason=EndorsementKeyBanned.reason,
                        message=MESSAGE,
                        by_operator=True,
                    )
                )
