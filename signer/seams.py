"""What the checks ask of their caller, and what they get."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from common.requests.binding import challenge_key_id
from signer.errors import ChallengeKeyUnknown
from signer.host_names import HostName
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, Registration
from signer.kinds.machine import Machine, MachineState
from signer.kinds.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAnswer:
    """What a platform says about an instance; empty if there is no such one, or it has no TPM."""

    endorsement_keys: frozenset[str] = frozenset()
    """Names of EndorsementKeys."""
    vm_id: str | None = None
    """UUID of the virtual machine in lower case, where quotes of the platform name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeKeys:
    """The challenge keys that are accepted now, 32 bytes each; `repr` never shows them."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(repr=False)

    def by_id(self, identity: str) -> bytes:
        """Return the challenge key with this ID. Raises `ChallengeKeyUnknown`: neither has it."""
        for key in (self.current, self.previous):
            if key is not None and hmac.compare_digest(challenge_key_id(key), identity):
                return key
        raise ChallengeKeyUnknown("the challenge was made under a key that is not known here")


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """A loss of claims of one Cluster, as after a restore of the management cluster."""

    at: datetime
    """When the newest claim of before had attested."""
    until: datetime
    """When the last certificate of before ends: at most one longest lifetime after `at`."""

    def covers(self, seen: datetime, now: datetime) -> bool:
        """Return whether a claim may be lost that is newer than what was seen at this time."""
        return seen <= self.at and now < self.until


class Inventory(Protocol):
    """The known objects of one Cluster, from caches only: no method calls an API server.

    Every method raises `ApiServerUnavailable` while its cache has not been filled once.
    """

    def cluster(self) -> Cluster:
        """Return the Cluster itself."""

    def went_back(self, cluster: ClusterKey) -> WentBack | None:
        """Return the last loss of claims of a Cluster, such as this one."""

    def machines(self, provider_id: str) -> Sequence[Machine]:
        """Return the Machines and pool members of this Cluster with exactly this provider ID."""

    def machines_with_host_name(self, name: HostName) -> Sequence[Machine]:
        """Return the Machines of this Cluster with an address of this canonical name."""

    def machines_with_node_ref(self, node_name: str) -> Sequence[Machine]:
        """Return the Machines of this Cluster whose `nodeRef` names this Node."""

    def node(self, name: str) -> Node | None:
        """Return the workload cluster's Node of that name."""

    def nodes_with_provider_id(self, provider_id: str) -> Sequence[Node]:
        """Return the workload cluster's Nodes with exactly this provider ID."""

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Return the EndorsementKey of that name."""

    def registrations(self, *values: str) -> Sequence[tuple[str, Registration]]:
        """Return operators' registrations for this Cluster, with their EndorsementKey names.

        Returns at least those with one of the values in any field; the caller checks the field.
        """

    def attested_node(self, node_name: str) -> AttestedNodeObject | None:
        """Return this Cluster's AttestedNode for a node name."""

    def attested_nodes_with_provider_id(self, provider_id: str) -> Sequence[AttestedNodeObject]:
        """Return this Cluster's AttestedNodes with exactly this provider ID.

        M3 compares the requested node name with the names of these AttestedNodes.
        """

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Return the AttestedNodes of all Clusters that name this EndorsementKey.

        Those without a Machine in the caches are left out. `None` if the caches do not have the
        objects of all Clusters: then only the API server can say it.
        """


class ClaimStore(Protocol):
    """Reads and writes claims in the API server, without a cache (K1 to K4).

    Writes carry the resourceVersion that was read; a conflict raises `ClaimConflict`.
    """

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node, of any Cluster. Raises `AttestedNodeUnreadable`."""

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject]:
        """Read the AttestedNodes of all Clusters that name this EndorsementKey."""

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node."""

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Write `heldBy` (also when it is unchanged) under the resourceVersion of `current`."""

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Create the AttestedNode; `resource_version` is ignored."""

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        """Write all of `new` under the resourceVersion of `current`."""

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID.

        An empty name means any name. A Cluster that does not exist has no Machines. A Machine that
        a paused Cluster lacks is `DELETING`. Raises `ApiServerUnavailable` when the state is
        unknown.
        """
