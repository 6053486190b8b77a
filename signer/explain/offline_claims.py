"""The claims (K1 to K4) of objects in files; nothing is written."""

from collections.abc import Sequence
from datetime import datetime

from common.errors import ApiServerUnavailable
from signer.explain.offline_inventory import OfflineObjects
from signer.kinds.attested_node import AttestedNodeObject, attested_node_name
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder
from signer.kinds.machine import MachineState


class OfflineClaimStore:
    """A `ClaimStore` over files: it reads what they hold, and returns what would be written."""

    def __init__(self, objects: OfflineObjects) -> None:
        """Read the claims of these objects."""
        self._objects = objects

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Return the EndorsementKey, or `None` if no file has it."""
        return self._objects.keys.get(name)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Return the AttestedNode of a node of any Cluster, or `None` if no file has it."""
        name = attested_node_name(cluster, node_name)
        return self._objects.nodes.get(f"{cluster.namespace}/{name}")

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject]:
        """Return the AttestedNodes of all Clusters in the files that name this EndorsementKey."""
        return self._objects.nodes.by_index("endorsement key", key_name)

    def create_endorsement_key(
        self,
        name: str,
        public_key_pem: str,  # noqa: ARG002 - nothing is written
        held_by: KeyHolder,
        now: datetime,  # noqa: ARG002 - as above
    ) -> EndorsementKeyObject:
        """Return the EndorsementKey that would be created."""
        return EndorsementKeyObject(name=name, resource_version="", held_by=held_by)

    def set_key_holder(
        self,
        current: EndorsementKeyObject,
        held_by: KeyHolder,  # noqa: ARG002 - nothing is written
        now: datetime,  # noqa: ARG002 - as above
    ) -> EndorsementKeyObject:
        """Return the EndorsementKey that would be written, unchanged."""
        return current

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Return the AttestedNode that would be created."""
        return node

    def replace_attested_node(
        self,
        current: AttestedNodeObject,  # noqa: ARG002 - nothing is written
        node: AttestedNodeObject,
    ) -> AttestedNodeObject:
        """Return the AttestedNode that would be written."""
        return node

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID.

        Raises `ApiServerUnavailable` for a `Cluster` that is in no file: it may exist.
        """
        found = self._objects.clusters.get(str(cluster))
        if found is None:
            raise ApiServerUnavailable(
                "another Cluster holds a claim, and no file has that Cluster",
                detail=str(cluster),
            )
        index_key = (cluster, provider_id)
        deleting = [
            machine.deleting
            for machine in self._objects.machines.by_index("provider ID", index_key)
            if machine_name in {"", machine.name}
        ]
        if not machine_name:
            pools = self._objects.pools.by_index("provider ID", index_key)
            deleting += [pool.deleting for pool in pools]
        if not deleting:
            return MachineState.DELETING if found.paused else MachineState.ABSENT
        return MachineState.DELETING if all(deleting) else MachineState.PRESENT
