"""Claims as files have them (K1 to K3): judged by the signer's own function, and never written."""

from datetime import datetime

from common.errors import ApiServerUnavailable
from signer.explain.offline_inventory import Dump
from signer.inventory.caches import cluster_key
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    MachineState,
    attested_node_name,
)


class OfflineClaimStore:
    """`signer.model.Claims` as the files have them; what would be written is handed back."""

    def __init__(self, dump: Dump) -> None:
        """Look at these files."""
        self._dump = dump

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""
        return self._dump.keys.get(name)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node, of any Cluster."""
        name = attested_node_name(cluster, node_name)
        return self._dump.nodes.get(f"{cluster.namespace}/{name}")

    def create_endorsement_key(
        self,
        name: str,
        public_key_pem: str,  # noqa: ARG002 - nothing is written
        held_by: KeyHolder,
        now: datetime,  # noqa: ARG002 - as above
    ) -> EndorsementKeyObject:
        """Return the EndorsementKey that would be created."""
        return EndorsementKeyObject(
            name=name,
            resource_version="",
            registered_for=(),
            released_from=(),
            banned=False,
            held_by=held_by,
        )

    def set_key_holder(
        self,
        current: EndorsementKeyObject,
        held_by: KeyHolder,  # noqa: ARG002 - nothing is written
        now: datetime,  # noqa: ARG002 - as above
    ) -> EndorsementKeyObject:
        """Return the EndorsementKey, which would be written."""
        return current

    def create_attested_node(self, wanted: AttestedNodeObject) -> AttestedNodeObject:
        """Return the AttestedNode that would be created."""
        return wanted

    def replace_attested_node(
        self,
        current: AttestedNodeObject,  # noqa: ARG002 - nothing is written
        wanted: AttestedNodeObject,
    ) -> AttestedNodeObject:
        """Return the AttestedNode that would be written."""
        return wanted

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID.

        A Cluster that is in no file may well exist: then nobody knows.
        """
        if self._dump.clusters.get(cluster_key(cluster)) is None:
            raise ApiServerUnavailable(
                "another Cluster holds a claim, and no file tells whether it lives",
                detail=cluster_key(cluster),
            )
        under = (cluster, provider_id)
        deleting = [
            machine.deleting
            for machine in self._dump.machines.by_index("provider ID", under)
            if machine_name in {"", machine.name}
        ]
        if not machine_name:
            pools = self._dump.pools.by_index("provider ID", under)
            deleting += [pool.deleting for pool in pools]
        if not deleting:
            return MachineState.ABSENT
        return MachineState.DELETING if all(deleting) else MachineState.PRESENT
