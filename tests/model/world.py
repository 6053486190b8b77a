"""What a model is made of: what operators decide, who is honest, and the bounds."""

from dataclasses import dataclass, field
from functools import cached_property

from tests.model.messages import Answer, Attacker, Place, answer, forgeries
from tests.model.rules import Mode, Rule
from tests.model.state import State

TOKEN = "token"
"""A bootstrap token that the attacker has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What stands in Machines, registrations and bans; `done` is the act that led here."""

    done: str = ""
    machines: frozenset[Place]
    records: frozenset[tuple[str, Place]] = frozenset()
    banned: frozenset[str] = frozenset()
    released: frozenset[tuple[str, str]] = frozenset()
    """Keys, each with a Cluster that it was released from."""

    def refuses(self, key: str, place: Place) -> bool:
        """Return whether an operator banned the key, or released it from this node."""
        return key in self.banned or self.is_released(key, place)

    def is_released(self, key: str, place: Place) -> bool:
        """Return whether the key was released from this node."""
        return (key, place.cluster) in self.released


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """An honest node: its Machine, its TPM's key, the token that it joins with."""

    place: Place
    key: str
    token: str = TOKEN
    since: int = 0
    """It is there from this act on."""

    def answer(self, *, renewal: bool) -> Answer:
        """Answer under a name that nobody else chooses, as the node itself once it can."""
        requester = f"node:{self.place.name}" if renewal else self.token
        kind = "renewal" if renewal else "join"
        made_by = f"host with {self.key}"
        return answer(f"{self.key}'s {kind}", self.place, requester, made_by, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Who is there, and the bounds. The operator does the acts one by one, at any moment."""

    worlds: tuple[World, ...]
    hosts: tuple[Host, ...] = ()
    attacker_keys: tuple[str, ...]
    attacker_requesters: tuple[str, ...] = (TOKEN,)
    targets: tuple[Place, ...]
    """Machines that the attacker asks for."""
    former_keys: tuple[str, ...] = ()
    """Keys of the attacker that were an honest node's own, or claimed its name before."""
    own_tokens: bool = False
    """The Machines' bootstrap configurations own their tokens (E2)."""
    hold: bool = False
    """The policy by which claims live until `notAfter` as well."""
    sweeper: bool = False
    """Dead claims are removed."""
    filed_at_once: int = 1
    replicas: int = 2


@dataclass(frozen=True, kw_only=True)
class Model:
    """A scenario under a policy mode, with some rules broken or none."""

    scenario: Scenario
    mode: Mode
    broken: frozenset[Rule] = field(default=frozenset())

    def world(self, state: State) -> World:
        """Return what is true now; a signer's caches may show an earlier one."""
        return self.scenario.worlds[state.acts]

    def keeps(self, rule: Rule) -> bool:
        """Tell whether a rule is followed."""
        return rule not in self.broken

    @cached_property
    def honest_answers(self) -> frozenset[Answer]:
        """Every answer that an honest host ever files."""
        hosts = self.scenario.hosts
        return frozenset(h.answer(renewal=renewal) for h in hosts for renewal in (False, True))

    @cached_property
    def forgeries(self) -> list[Answer]:
        """Every answer that the attacker can file and that proves itself."""
        attacker = Attacker(
            keys=self.scenario.attacker_keys,
            requesters=self.scenario.attacker_requesters,
            places=self.scenario.targets,
            honest=self.honest_answers,
        )
        return forgeries(attacker, self.broken)
