"""The inputs of a model: operators' decisions, honest nodes, and bounds."""

from dataclasses import dataclass, field
from functools import cached_property

from tests.model.messages import Answer, Attacker, Place, answer, forgeries
from tests.model.rules import Mode, Rule
from tests.model.state import State

TOKEN = "token"
"""A bootstrap token that the attacker also has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The Machines, registrations and bans at one moment. `done` is the act that led here."""

    done: str = ""
    machines: frozenset[Place]
    records: frozenset[tuple[str, Place]] = frozenset()
    banned: frozenset[str] = frozenset()
    released: frozenset[tuple[str, str]] = frozenset()
    """Keys, each with a Cluster from which it was released."""

    def refuses(self, key: str, place: Place) -> bool:
        """Return whether an operator banned the key, or released it from this node."""
        return key in self.banned or self.is_released(key, place)

    def is_released(self, key: str, place: Place) -> bool:
        """Return whether the key was released from this node."""
        return (key, place.cluster) in self.released


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An honest node: its Machine, its TPM's key, and the token with which it joins."""

    place: Place
    key: str
    token: str = TOKEN
    since: int = 0
    """The node exists after this many acts."""

    def answer(self, *, renewal: bool) -> Answer:
        """Return the node's answer, under an object name that no other node chooses."""
        requester = f"node:{self.place.name}" if renewal else self.token
        kind = "renewal" if renewal else "join"
        made_by = f"host with {self.key}"
        return answer(f"{self.key}'s {kind}", self.place, requester, made_by, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The actors and the bounds. The operator does the acts in order, each at any moment."""

    worlds: tuple[World, ...]
    hosts: tuple[Host, ...] = ()
    attacker_keys: tuple[str, ...]
    attacker_requesters: tuple[str, ...] = (TOKEN,)
    targets: tuple[Place, ...]
    """Machines for which the attacker asks for a certificate."""
    former_keys: tuple[str, ...] = ()
    """The attacker's keys that belonged to an honest node, or claimed its name before."""
    own_tokens: bool = False
    """Whether the Machines' bootstrap configurations own their tokens (E2)."""
    hold: bool = False
    """Whether the policy keeps claims until `notAfter`."""
    sweeper: bool = False
    """Whether claims that are not live are removed."""
    filed_at_once: int = 1
    replicas: int = 2


@dataclass(frozen=True, kw_only=True)
class Model:
    """A scenario under a policy mode, possibly with broken rules."""

    scenario: Scenario
    mode: Mode
    broken: frozenset[Rule] = field(default=frozenset())

    def world(self, state: State) -> World:
        """Return the current world. A signer's caches may show an earlier one."""
        return self.scenario.worlds[state.acts]

    def keeps(self, rule: Rule) -> bool:
        """Return whether a rule is followed."""
        return rule not in self.broken

    @cached_property
    def honest_answers(self) -> frozenset[Answer]:
        """Return every answer that an honest host ever files."""
        hosts = self.scenario.hosts
        return frozenset(h.answer(renewal=renewal) for h in hosts for renewal in (False, True))

    @cached_property
    def forgeries(self) -> list[Answer]:
        """Return every answer that the attacker can file and that proves itself."""
        attacker = Attacker(
            keys=self.scenario.attacker_keys,
            requesters=self.scenario.attacker_requesters,
            places=self.scenario.targets,
            honest=self.honest_answers,
        )
        return forgeries(attacker, self.broken)
