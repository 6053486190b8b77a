"""Claims in memory: atomic writes as in the API server, and a hook for concurrent writers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from common.errors import ApiServerUnavailable
from signer.errors import AttestedNodeUnreadable, ClaimConflict
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder
from signer.kinds.machine import Machine, MachineState


@dataclass(slots=True)
class StoredClaims:
    """The content of the management cluster: claims by object name, Machines by Cluster."""

    keys: dict[str, EndorsementKeyObject] = field(default_factory=dict)
    nodes: dict[tuple[str, str], AttestedNodeObject] = field(default_factory=dict)
    machines: dict[ClusterKey, list[Machine]] = field(default_factory=dict)
    deleted_clusters: set[ClusterKey] = field(default_factory=set)
    """Deleted Clusters. Their Machines may remain."""
    paused_clusters: set[ClusterKey] = field(default_factory=set)
    unreadable_nodes: set[tuple[ClusterKey, str]] = field(default_factory=set)
    """Clusters and names of nodes whose AttestedNode cannot be read. No cache has it."""
    version: int = 0

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def put_key(self, key: EndorsementKeyObject) -> EndorsementKeyObject:
        """Write an EndorsementKey unconditionally."""
        self.keys[key.name] = key.replace(resource_version=self.next_version())
        return self.keys[key.name]

    def put_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Write an AttestedNode unconditionally."""
        stored = node.replace(resource_version=self.next_version())
        self.nodes[node.cluster.namespace, node.name] = stored
        return stored

    def find_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        for node in self.nodes.values():
            if (node.cluster, node.node_name) == (cluster, node_name):
                return node
        return None

    def members(self, cluster: ClusterKey, provider_id: str) -> Sequence[Machine]:
        return [m for m in self.machines.get(cluster, []) if m.provider_id == provider_id]

    def may_have_machine(self, node: AttestedNodeObject) -> bool:
        """Return whether a claim's Machine exists, or its Cluster is paused."""
        members = self.members(node.cluster, node.provider_id)
        exists = any(node.machine_name in {"", m.name} for m in members)
        return exists or node.cluster in self.paused_clusters


@dataclass(slots=True)
class FakeClaimStore:
    """The `Claims` seam over a store; `interrupt` runs once before the n-th write (from 1)."""

    store: StoredClaims
    interrupt: Callable[[], None] | None = None
    interrupt_before: int = 1
    unavailable: bool = False
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        self._read(f"key {name[:8]}")
        return self.store.keys.get(name)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        self._read(f"node {node_name}")
        if (cluster, node_name) in self.store.unreadable_nodes:
            raise AttestedNodeUnreadable("unreadable")
        return self.store.find_node(cluster, node_name)

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject]:
        self._read(f"nodes of {key_name[:8]}")
        unreadable = self.store.unreadable_nodes
        return [
            node
            for node in self.store.nodes.values()
            if node.endorsement_key == key_name and (node.cluster, node.node_name) not in unreadable
        ]

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create; raise an error if the object exists."""
        assert public_key_pem.startswith("-----BEGIN PUBLIC KEY-----")
        assert now.tzinfo is not None
        self._write(f"create key {name[:8]}")
        if name in self.store.keys:
            raise ClaimConflict("exists")
        return self.store.put_key(
            EndorsementKeyObject(name=name, resource_version="", held_by=held_by)
        )

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Write the holder if the resourceVersion is the one that was read."""
        assert now.tzinfo is not None
        self._write(f"hold key {current.name[:8]}")
        self._require_unchanged(self.store.keys.get(current.name), current)
        return self.store.put_key(current.replace(held_by=held_by))

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Create; raise an error if the object exists."""
        self._write(f"create node {node.node_name}")
        if (node.cluster.namespace, node.name) in self.store.nodes:
            raise ClaimConflict("exists")
        return self.store.put_node(node)

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        """Write all fields if the resourceVersion is the one that was read."""
        self._write(f"replace node {new.node_name}")
        stored = self.store.nodes.get((current.cluster.namespace, current.name))
        self._require_unchanged(stored, current)
        return self.store.put_node(new)

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        self._read(f"machine {provider_id}")
        if cluster in self.store.deleted_clusters:
            return MachineState.ABSENT
        members = [
            m for m in self.store.members(cluster, provider_id) if machine_name in {"", m.name}
        ]
        if any(not m.deleting for m in members):
            return MachineState.PRESENT
        may_come = cluster in self.store.paused_clusters
        return MachineState.DELETING if members or may_come else MachineState.ABSENT

    def _read(self, what: str) -> None:
        self._require_available()
        self.reads.append(what)

    def _write(self, what: str) -> None:
        self._require_available()
        self.writes.append(what)
        if self.interrupt is not None and len(self.writes) == self.interrupt_before:
            self.interrupt()

    def _require_available(self) -> None:
        if self.unavailable:
            raise ApiServerUnavailable("down")

    @staticmethod
    def _require_unchanged(
        stored: EndorsementKeyObject | AttestedNodeObject | None,
        read: EndorsementKeyObject | AttestedNodeObject,
    ) -> None:
        if stored is None or stored.resource_version != read.resource_version:
            raise ClaimConflict("changed since it was read")


@dataclass(slots=True)
class BusyClaimStore(FakeClaimStore):
    """Another replica writes before every write."""

    def _write(self, what: str) -> None:
        FakeClaimStore._write(self, what)
        raise ClaimConflict(what)
