"""A scenario under a policy mode, and the signer's own functions on its states.

M and E are `verify_answer` on caches. K1 to K4 are `make_claims`, one call after the other, against
the fake store of the unit tests. C, A and Q are in `messages`; R0, P and I are left out.
"""

from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

from common.errors import Denied, Waiting
from signer.errors import ClaimConflict
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.kinds.machine import MachineState
from signer.policy.policy import NameReuse, Policy
from signer.seams import Inventory
from signer.verify import claimed_answer
from signer.verify.answer import VerifiedAnswer, verify_answer
from signer.verify.context import VerificationContext
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.requests.parse import ParsedAnswer
from signer.verify.requests.recognize import CsrKind
from signer.verify.x509.trust_anchors import NO_ANCHORS
from tests.builders.endorsement_keys import endorsement_key, key_holder
from tests.builders.scenario import CHALLENGE_KEYS, CLUSTER
from tests.fakes.claims import FakeClaimStore, StoredClaims
from tests.fakes.inventory import FakeInventory
from tests.fakes.platforms import FakePlatforms
from tests.model.messages import Answer, Attacker, answer, forgeries
from tests.model.modes import Mode
from tests.model.objects import (
    NOT_AFTER,
    NOW,
    Numbers,
    cluster_key,
    cluster_object,
    csr_object,
    judged,
    machine_objects,
    node_objects,
    unclaimed_key,
)
from tests.model.replay import Call, Replay, next_call
from tests.model.rules import Rule
from tests.model.state import Seen, State, Subject, Verdict
from tests.model.world import EkCertificate, Host, Scenario, World

CERTIFICATE: Final = WithheldCertificate(pem=b"", credential_id="", not_after=NOT_AFTER)
WAIT: Final = "waits"
DONE: Final = "has written the claims"
_ELSEWHERE: Final = key_holder(cluster_key("elsewhere"), node_name="", provider_id="")


class Work(NamedTuple):
    """A proved answer after M and E: the signer will make these claims."""

    verified: VerifiedAnswer
    body: str


class Refusal(NamedTuple):
    """Why an answer is denied."""

    reason: str


class Effect(NamedTuple):
    """What a call returned and wrote."""

    seen: Seen
    is_write: bool
    keys: frozenset[int]
    nodes: frozenset[int]


class Model:
    """One exploration: a scenario, a mode, and the rules that are broken."""

    def __init__(
        self, scenario: Scenario, mode: Mode, broken: frozenset[Rule] = frozenset()
    ) -> None:
        self.scenario = scenario
        self.mode = mode
        self.broken = broken
        self.keys: Numbers[EndorsementKeyObject] = Numbers()
        self.nodes: Numbers[AttestedNodeObject] = Numbers()
        self.works: list[Work] = []
        self._numbers: dict[object, int] = {}
        self._admitted: dict[object, int | Refusal | None] = {}
        self._calls: dict[object, Call | Refusal | str] = {}
        self._canonical: dict[object, tuple[bool, tuple[Seen, ...]]] = {}
        self._alike: dict[object, tuple[bool, tuple[Seen, ...]]] = {}
        self._effects: dict[object, tuple[Call, Effect | None]] = {}
        self._answers = {
            (host, renewal): _answer(host, renewal=renewal)
            for host in scenario.hosts
            for renewal in (False, True)
        }

    def world(self, state: State) -> World:
        """Return the current world. A signer's caches may show an earlier one."""
        return self.scenario.worlds[state.acts]

    def keeps(self, rule: Rule) -> bool:
        """Return whether a rule is followed."""
        return rule not in self.broken

    def answer_of(self, host: Host, *, renewal: bool) -> Answer:
        """Return the answer of an honest node, under an object name that no other node chooses."""
        return self._answers[host, renewal]

    @cached_property
    def honest_answers(self) -> frozenset[Answer]:
        """Return every answer that an honest host ever files."""
        return frozenset(self._answers.values())

    @cached_property
    def forgeries(self) -> list[Answer]:
        """Return every answer that the attacker can file and that proves itself."""
        attacker = Attacker(
            keys=self.scenario.attacker_keys,
            requesters=self.scenario.attacker_requesters,
            places=self.scenario.targets,
            honest=self.honest_answers,
            writes_csrs=self.scenario.writes_csrs,
        )
        return forgeries(attacker, self.broken)

    @cached_property
    def start(self) -> State:
        """Return the first state: operators may have registered keys."""
        registered = {key for key, _ in self.scenario.registered}
        keys = (self.keys.of(unclaimed_key(key, self.scenario)) for key in registered)
        return State(keys=frozenset(keys))

    @cached_property
    def policy(self) -> Policy:
        """Return the policy of all Clusters."""
        return Policy(
            name="model",
            endorsement_key=self.mode.rules,
            attestation_key=self.mode.attestation_key_rules,
            name_reuse=(
                NameReuse.AFTER_CERTIFICATE if self.scenario.hold else NameReuse.AFTER_MACHINE
            ),
        )

    def admit(self, state: State, it: Answer, view: int) -> int | Refusal | None:
        """Check M and E with caches that show an earlier world.

        Return the number of the work to do, a refusal, or `None` for a request that waits.
        """
        known = (it, view, state.keys, state.nodes, state.joined)
        if known not in self._admitted:
            try:
                self._admitted[known] = self._verify(state, it, self.scenario.worlds[view])
            except Denied as error:
                self._admitted[known] = Refusal(f"{error.check}: {error.message}")
            except Waiting:
                self._admitted[known] = None
        return self._admitted[known]

    def _verify(self, state: State, it: Answer, seen: World) -> int:
        store = self._store(state, seen)
        store.keys = {name: judged(key, seen) for name, key in store.keys.items()}
        if it.annotation and not self.keeps(Rule.ANNOTATIONS_UNREAD):
            world = World(machines=seen.machines, records=frozenset({(it.annotation, it.place)}))
            store.machines = machine_objects(world, self.scenario)
        inventory = FakeInventory(
            of=cluster_object(it.cluster, seen),
            store=store,
            nodes=node_objects(state.joined, it.cluster),
        )
        verified = verify_answer(
            csr_object(it),
            CsrKind.CLIENT,
            _parsed(it, self.scenario.certificate(it.key)),
            self._context(inventory),
            CHALLENGE_KEYS,
        )
        machine = verified.machine
        [body] = {
            made.body
            for made in seen.machines
            if (made.cluster, made.provider_id) == (it.cluster, machine.provider_id)
            and (made.name, made.uid) == (machine.name, machine.uid)
        }
        known = (it, verified.holder.basis, machine.name, machine.uid)
        number = self._numbers.setdefault(known, len(self.works))
        if number == len(self.works):
            self.works.append(Work(verified, body))
        return number

    def next_call(self, verdict: Verdict) -> Call | Refusal | str:
        """Return the next call of K1 to K4, or how they end."""
        known = (verdict.work, verdict.cached, verdict.seen)
        if known not in self._calls:
            answers = [self.revive(each) for each in verdict.seen]
            try:
                outcome = next_call(lambda api: self.claim(verdict, api), answers)
            except Denied as error:
                self._calls[known] = Refusal(f"{error.check}: {error.message}")
            except Waiting:
                self._calls[known] = WAIT
            else:
                self._calls[known] = outcome if isinstance(outcome, Call) else DONE
        return self._calls[known]

    def canonical(self, verdict: Verdict) -> Verdict:
        """Return one verdict for all those that will make the same writes.

        When the checks are over, what they read has no more effect.
        """
        known = (verdict.work, verdict.cached, verdict.seen)
        if known not in self._canonical:
            plan = self._plan(verdict)
            has_written = any(seen.method.endswith("e_attested_node") for seen in verdict.seen)
            alike = (verdict.work, has_written, plan) if plan else known
            self._canonical[known] = self._alike.setdefault(alike, (verdict.cached, verdict.seen))
        cached, seen = self._canonical[known]
        return verdict._replace(cached=cached, seen=seen)

    def _plan(self, verdict: Verdict) -> tuple[Call, ...]:
        """Return the writes up to the first that conflicts; nothing while there are reads to do."""
        plan: list[Call] = []
        answers = [self.revive(each) for each in verdict.seen]
        while True:
            try:
                call = next_call(lambda api: self.claim(verdict, api), answers)
            except (Denied, Waiting):
                return ()
            if not isinstance(call, Call):
                return tuple(plan)
            if not is_write(call):
                return ()
            plan.append(call)
            first = call.arguments[0]
            if getattr(first, "resource_version", "") == "old":
                return tuple(plan)
            answers.append(_written(call))

    def claim(self, verdict: Verdict, api: Replay) -> None:
        """Write the claims of a verdict (K1 to K4), with caches as `verdict.cached` says."""
        verified = self.works[verdict.work].verified
        held_by = verified.holder if verdict.cached else _ELSEWHERE
        name = verified.ground.key.name
        key = endorsement_key(name, resource_version="old", held_by=held_by)
        node = api.cached_node() if verdict.cached else None
        caches = SimpleNamespace(
            endorsement_key=lambda _: key,
            attested_node=lambda _: node,
            attested_nodes_with_key=api.attested_nodes_with_key,
            went_back=lambda _: None,
        )
        context = self._context(cast("Inventory", caches))
        claimed_answer.make_claims(
            verified, context, claims=cast("Any", api), sign=lambda _: CERTIFICATE
        )

    def perform(self, state: State, call: Call) -> Effect | None:
        """Make a call of K1 to K4 or of the sweep; return `None` if it conflicts."""
        known = (id(call), state.keys, state.nodes, state.acts)
        if known not in self._effects:
            # The call is kept, so that no other one gets its ID.
            self._effects[known] = call, self._perform(state, call)
        return self._effects[known][1]

    def _perform(self, state: State, call: Call) -> Effect | None:
        store = self._store(state, self.world(state))
        subject = subject_of(call)
        if call.method.startswith("create") and not self.keeps(Rule.RESOURCE_VERSIONS):
            store.keys.pop(subject[0], None)
            store.nodes.pop(("tenants", getattr(call.arguments[0], "name", "")), None)
        inventory = FakeInventory(of=CLUSTER, store=store)
        api = inventory if call.method == "attested_nodes_with_key" else FakeClaimStore(store)
        try:
            result = getattr(api, call.method)(*call.arguments)
        except ClaimConflict:
            first, *others = call.arguments
            if self.keeps(Rule.RESTART_ON_CONFLICT) or others[:1] != [getattr(first, "held_by", 0)]:
                return None
            result = first  # K3 takes the conflict for a success
        seen = Seen(call.method, subject, self._number(result))
        keys = frozenset(self.keys.of(key) for key in store.keys.values())
        nodes = frozenset(self.nodes.of(node) for node in store.nodes.values())
        return Effect(seen, is_write(call), keys, nodes)

    def _store(self, state: State, world: World) -> StoredClaims:
        nodes = [self.nodes.get(number) for number in state.nodes]
        keys = [self.keys.get(number) for number in state.keys]
        paused = world.paused if self.keeps(Rule.PAUSED_MACHINE_MAY_COME) else ()
        return StoredClaims(
            keys={key.name: key for key in keys},
            nodes={(node.cluster.namespace, node.name): node for node in nodes},
            machines=machine_objects(world, self.scenario),
            paused_clusters={cluster_key(cluster) for cluster in paused},
        )

    def _context(self, inventory: Inventory) -> VerificationContext:
        return VerificationContext(
            inventory=inventory,
            policy=self.policy,
            anchors=NO_ANCHORS,
            now=NOW,
            platforms=FakePlatforms(),
        )

    def _number(self, result: object) -> int | MachineState | tuple[int, ...] | None:
        if isinstance(result, EndorsementKeyObject):
            return self.keys.of(result)
        if isinstance(result, AttestedNodeObject):
            return self.nodes.of(result)
        if isinstance(result, Sequence):
            return tuple(sorted(self.nodes.of(node) for node in result))
        return cast("MachineState | None", result)

    def revive(self, seen: Seen) -> object:
        is_current = seen.is_current or not self.keeps(Rule.RESOURCE_VERSIONS)
        if isinstance(seen.value, tuple):
            return [self.nodes.get(number, is_current=False) for number in seen.value]
        if not isinstance(seen.value, int):
            return seen.value
        numbers = self.keys if len(seen.subject) == 1 else self.nodes
        return numbers.get(seen.value, is_current=is_current)


def _answer(host: Host, *, renewal: bool) -> Answer:
    requester = f"node:{host.place.name}" if renewal else host.token
    kind = "renewal" if renewal else "join"
    return answer(f"{host.key}'s {kind}", host.place, requester, f"host with {host.key}", host.key)


def _parsed(it: Answer, certificate: EkCertificate | None) -> ParsedAnswer:
    """Return an answer as far as M and E read it; `broken` proves its key."""
    return cast(
        "ParsedAnswer",
        SimpleNamespace(
            request=SimpleNamespace(node_name=it.request.name, public_key=None),
            provider_id=it.request.provider_id,
            evidence=SimpleNamespace(key=it.key, ek_certificates=certificate, ek_creation=None),
        ),
    )


def is_write(call: Call) -> bool:
    """Return whether a call writes a claim."""
    return call.method.startswith(("create", "set", "replace", "delete"))


def _written(call: Call) -> EndorsementKeyObject | AttestedNodeObject:
    """Return what a write that succeeds returns."""
    store = StoredClaims()
    first = call.arguments[0]
    if call.method == "set_key_holder":
        store.keys[first.name] = first
    elif call.method == "replace_attested_node":
        store.nodes[first.cluster.namespace, first.name] = first
    result: EndorsementKeyObject | AttestedNodeObject = getattr(FakeClaimStore(store), call.method)(
        *call.arguments
    )
    return result.replace(resource_version="current")


def subject_of(call: Call) -> Subject:
    """Return the object that a call reads or writes."""
    first = call.arguments[0]
    if isinstance(first, EndorsementKeyObject):
        return (first.name,)
    if isinstance(first, AttestedNodeObject):
        return first.cluster.name, first.node_name
    if call.method == "attested_node":
        return first.name, call.arguments[1]
    if call.method in ("endorsement_key", "create_endorsement_key"):
        return (first,)
    return ()
