"""The inputs of a model: Machines, operators' decisions, honest nodes, and bounds."""

from dataclasses import dataclass
from typing import NamedTuple

from tests.model.messages import Place, tpm_of

TOKEN = "token"
"""A bootstrap token that the attacker also has."""


class Made(NamedTuple):
    """A Machine object, or a member of a MachinePool that has none."""

    body: str
    """The machine itself. `clusterctl move` makes a new object for it."""
    cluster: str
    provider_id: str
    node_names: tuple[str, ...]
    """From its addresses: the name of the object, and the node names that M3 allows."""
    uid: str
    is_deleting: bool = False
    is_pool_member: bool = False

    @property
    def name(self) -> str:
        """Return the name of the object; a pool has one for all its members."""
        return "pool" if self.is_pool_member else self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The Machines, registrations and bans at one moment. `done` is the act that led here."""

    done: str = ""
    machines: frozenset[Made]
    away: frozenset[Made] = frozenset()
    """Machines that exist, while `clusterctl move` has not made their objects yet."""
    paused: frozenset[str] = frozenset()
    """Clusters."""
    records: frozenset[tuple[str, Place]] = frozenset()
    banned: frozenset[str] = frozenset()
    released: frozenset[tuple[str, str]] = frozenset()
    """Keys, each with a Cluster from which it was released."""
    restores: bool = False
    """Whether the claims are again as they were at the start."""

    @property
    def bodies(self) -> frozenset[str]:
        """Return the machines that exist."""
        return frozenset(machine.body for machine in self.machines | self.away)

    def refuses(self, key: str, cluster: str) -> bool:
        """Return whether an operator banned the key, or released it from this Cluster."""
        return key in self.banned or (key, cluster) in self.released


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An honest node: its Machine, its TPM's key, and the token with which it joins."""

    place: Place
    key: str
    token: str = TOKEN
    since: int = 0
    """The node exists after this many acts."""


class EkCertificate(NamedTuple):
    """The certificate of an endorsement key, from an authority that the policy trusts."""

    provider_ids: frozenset[str]
    """The Machines that it names: none, or one after the other. The authority may be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The actors and the bounds. The operator does the acts in order, each at any moment."""

    worlds: tuple[World, ...]
    hosts: tuple[Host, ...] = ()
    attacker_keys: tuple[str, ...]
    attacker_requesters: tuple[str, ...] = (TOKEN,)
    targets: tuple[Place, ...]
    """Nodes for which the attacker asks for a certificate."""
    writes_csrs: bool = False
    """Whether the attacker writes challenges into the offers of others, and deletes CSRs."""
    attacker_joins: bool = True
    """Whether the attacker's nodes have Node objects."""
    former_keys: tuple[str, ...] = ()
    """The attacker's keys that belonged to an honest node, or claimed its name before."""
    registered: tuple[tuple[str, Place], ...] = ()
    """What EndorsementKeys are registered for; `World.records` are annotations."""
    names: frozenset[tuple[str, Place]] = frozenset()
    """Which Machines the certificates of a TPM name; every other certificate names another one."""
    own_tokens: bool = False
    """Whether the Machines' bootstrap configurations own their tokens (E2)."""
    hold: bool = False
    """Whether the policy keeps claims until `notAfter`."""
    sweeper: bool = False
    """Whether claims that are not live are removed."""
    filed_at_once: int = 1
    replicas: int = 2

    def certificate(self, key: str) -> EkCertificate | None:
        """Return the certificate of a key: one outside of a TPM has none."""
        if key.startswith("soft"):
            return None
        if key.startswith("plain"):
            return EkCertificate(frozenset())
        named = {place.provider_id for one, place in self.names if tpm_of(one) == tpm_of(key)}
        return EkCertificate(frozenset(named or {"elsewhere"}))
