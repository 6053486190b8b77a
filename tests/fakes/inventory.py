"""An inventory in memory: the content of the caches of one Cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from common.errors import ApiServerUnavailable
from signer.host_names import HostName, canonical_name
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, Registration
from signer.kinds.machine import Machine
from signer.kinds.node import Node
from signer.seams import WentBack
from tests.fakes.claims import StoredClaims


@dataclass(slots=True)
class FakeInventory:
    """The `Records` seam over a store; `filled` is false until the caches have been filled once."""

    of: Cluster
    store: StoredClaims
    nodes: list[Node] = field(default_factory=list)
    filled: bool = True
    lost: WentBack | None = None
    sees_all: bool = True
    """Whether the caches have the objects of all Clusters."""

    def went_back(self, _cluster: ClusterKey) -> WentBack | None:
        self._require_filled()
        return self.lost

    def cluster(self) -> Cluster:
        self._require_filled()
        return self.of

    def machines(self, provider_id: str) -> Sequence[Machine]:
        self._require_filled()
        return self.store.members(self.of.key, provider_id)

    def machines_with_host_name(self, name: HostName) -> Sequence[Machine]:
        """Find Machines by the canonical names of their addresses."""
        return [
            m
            for m in self._machines()
            if any(name == canonical_name(a.address) for a in m.addresses)
        ]

    def machines_with_node_ref(self, node_name: str) -> Sequence[Machine]:
        return [m for m in self._machines() if m.node_ref == node_name]

    def _machines(self) -> Sequence[Machine]:
        self._require_filled()
        return self.store.machines.get(self.of.key, [])

    def node(self, name: str) -> Node | None:
        self._require_filled()
        return next((n for n in self.nodes if n.name == name), None)

    def nodes_with_provider_id(self, provider_id: str) -> Sequence[Node]:
        self._require_filled()
        return [n for n in self.nodes if n.provider_id == provider_id]

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        self._require_filled()
        return self.store.keys.get(name)

    def registrations(self, *values: str) -> Sequence[tuple[str, Registration]]:
        """Collect the registrations for this Cluster that have one of the values."""
        return [
            (key, registration)
            for key, registration in self._registrations()
            if not {
                registration.provider_id,
                registration.machine_name,
                registration.node_name,
            }.isdisjoint(values)
        ]

    def _registrations(self) -> Sequence[tuple[str, Registration]]:
        self._require_filled()
        return [
            (key.name, registration)
            for key in self.store.keys.values()
            for registration in key.registered_for
            if registration.cluster == self.of.key
        ]

    def attested_node(self, node_name: str) -> AttestedNodeObject | None:
        self._require_filled()
        node = self.store.find_node(self.of.key, node_name)
        return node if node in self._attested_nodes() else None

    def attested_nodes_with_provider_id(self, provider_id: str) -> Sequence[AttestedNodeObject]:
        self._require_filled()
        return [
            n
            for n in self._attested_nodes()
            if (n.cluster, n.provider_id) == (self.of.key, provider_id)
        ]

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Find AttestedNodes of all Clusters by key."""
        self._require_filled()
        if not self.sees_all:
            return None
        return [
            n
            for n in self._attested_nodes()
            if n.endorsement_key == key_name and self.store.may_have_machine(n)
        ]

    def _attested_nodes(self) -> Sequence[AttestedNodeObject]:
        unreadable = self.store.unreadable_nodes
        return [n for n in self.store.nodes.values() if (n.cluster, n.node_name) not in unreadable]

    def _require_filled(self) -> None:
        if not self.filled:
            raise ApiServerUnavailable("not read yet")


class AllRegistrations(FakeInventory):
    """An inventory that returns every registration of this Cluster. The interface allows that."""

    def registrations(self, *values: str) -> Sequence[tuple[str, Registration]]:
        """Collect the registrations for this Cluster."""
        assert values
        return self._registrations()
