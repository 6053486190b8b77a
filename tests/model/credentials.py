"""K4 and the record of a node's certificates, explored with the signer's own functions.

One node, its TPM, and two replicas of the signer. Every API call of a verdict is a step, and a
replica may crash before each. The claims of K1 to K3 are in the other modules of this package.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

from signer.errors import RequesterCredentialUnknown
from signer.model import AttestedNodeObject, ClusterKey
from signer.verify.credentials import credential_ids_after_issue, verify_known_credential
from tests.builders.attested_nodes import attested_node

Record = tuple[int, ...]
"""Certificates in the AttestedNode. They are numbered in the order in which they are signed.

Those that nothing refers to any more lose their numbers, so that the states are finite and the node
may renew any number of times.
"""

_REPLICAS = 2
_MAX_CERTIFICATES = 4
_MAX_REQUESTS = 2
"""The one that the node waits for, and one that it has given up."""
_KEY = "endorsement key"


class Rule(StrEnum):
    """The rules. An exploration runs with some of them broken, by default none."""

    RECORD_FIRST = "a certificate is recorded before it is released"
    RESOURCE_VERSIONS = "the record is written under the resourceVersion that was read"
    PRESENTED_STAYS = "the certificate that filed the request stays recorded"
    LATER_STAY = "certificates that were recorded after it stay"
    MORE_THAN_TWO = "the record is not limited to two certificates"
    EARLIER_END = "certificates that were recorded before it end"
    EMPTY_PASSES = "without a recorded certificate, K4 refuses none"


class Loss(StrEnum):
    """What must never happen."""

    LOCKOUT = "K4 refuses the certificate that the node has"
    COPY_ACCEPTED = "K4 accepts a certificate after the node has renewed with a later one"


class Request(NamedTuple):
    """A CSR of the node."""

    presented: int | None
    """The certificate that filed it; `None` for a bootstrap token."""
    released: int | None = None
    denied: bool = False

    @property
    def is_decided(self) -> bool:
        """Return whether it has a certificate or is denied."""
        return self.denied or self.released is not None


class At(StrEnum):
    """The next API call of a verdict."""

    READ = "reads the record"
    WRITE = "writes the record"
    RELEASE = "releases its certificate"


class Verdict(NamedTuple):
    """One replica's work on one request. A crash loses all of it."""

    request: int
    certificate: int
    """It is signed first, and released last."""
    at: At = At.READ
    is_current: bool = False
    """Whether nobody has written the record since it was read."""
    read: Record = ()
    """What was read. Kept only where a broken rule writes it although it is not current."""


class State(NamedTuple):
    """The state of the whole model."""

    record: Record
    held: int | None = 0
    """The node's certificate; `None` while it has only a bootstrap token."""
    replaced: frozenset[int] = frozenset()
    """Recorded certificates that the node has had before. Each may have been copied."""
    requests: tuple[Request, ...] = ()
    active: int | None = None
    """The request that the node waits for."""
    verdicts: tuple[Verdict, ...] = ()


class Step(NamedTuple):
    """One transition."""

    text: str
    after: State
    loss: Loss | None = None


class Result(NamedTuple):
    """The number of states, with a shortest trace for each loss."""

    states: int
    lost: dict[Loss, list[str]]


@cache
def explore(broken: frozenset[Rule] = frozenset(), until: Loss | None = None) -> Result:
    """Explore every state, from a recorded certificate and from one of kubeadm.

    With `until`, stop when that loss is found.
    """
    starts = [State(record=(0,)), State(record=())]
    reached: dict[State, tuple[State, str] | None] = dict.fromkeys(starts)
    todo, lost = list(starts), dict[Loss, list[str]]()
    for state in todo:  # The list grows during the loop
        for step in steps(state, broken):
            if step.loss is not None and step.loss not in lost:
                lost[step.loss] = [*_trace(reached, state), step.text]
            after = _canonical(step.after)
            if after not in reached:
                reached[after] = (state, step.text)
                todo.append(after)
        if until in lost:
            break
    return Result(len(todo), lost)


def steps(state: State, broken: frozenset[Rule]) -> Iterator[Step]:
    """Return every step that is possible next."""
    yield from _node(state)
    yield from _picks(state)
    for verdict in set(state.verdicts):
        yield Step(f"the replica crashes that next {verdict.at}", _without(state, verdict))
        yield _work(state, verdict, broken)


def _node(state: State) -> Iterator[Step]:
    """Let the node file, receive, give up a request, and lose its disk."""
    if state.held is not None:
        lost = state._replace(held=None, replaced=state.replaced | {state.held}, active=None)
        yield Step("the node loses its disk", lost)
    if state.active is None:
        if len(state.requests) < _MAX_REQUESTS:
            requests = (*state.requests, Request(state.held))
            filed = state._replace(requests=requests, active=len(state.requests))
            yield Step(f"the node files request {filed.active} with {state.held}", filed)
        return
    yield Step(f"the node gives up request {state.active}", state._replace(active=None))
    received = state.requests[state.active].released
    if received is not None:
        former = frozenset() if state.held is None else frozenset({state.held})
        after = state._replace(held=received, replaced=state.replaced | former, active=None)
        yield Step(f"the node receives {received}", after)


def _picks(state: State) -> Iterator[Step]:
    """Let an idle replica sign a certificate for an undecided request."""
    next_number = max(_certificates(state), default=-1) + 1
    if len(state.verdicts) == _REPLICAS or next_number == _MAX_CERTIFICATES:
        return
    for number, request in enumerate(state.requests):
        if not request.is_decided:
            after = _with(state, Verdict(number, next_number))
            yield Step(f"a replica signs {next_number} for request {number}", after)


def _work(state: State, verdict: Verdict, broken: frozenset[Rule]) -> Step:
    """Make the next call of a verdict."""
    idle = _without(state, verdict)
    text = f"the replica with {verdict.certificate} {verdict.at}"
    presented = state.requests[verdict.request].presented
    if verdict.at is At.READ:
        if not is_known(state.record, presented, broken):
            denied = _decide(idle, verdict.request, denied=True)
            loss = Loss.LOCKOUT if verdict.request == state.active else None
            return Step(f"{text}, and K4 refuses {presented}", denied, loss)
        first = At.WRITE if Rule.RECORD_FIRST not in broken else At.RELEASE
        kept = state.record if Rule.RESOURCE_VERSIONS in broken else ()
        return Step(text, _with(idle, verdict._replace(at=first, is_current=True, read=kept)))
    if verdict.at is At.RELEASE:
        after = _decide(idle, verdict.request, released=verdict.certificate)
        if Rule.RECORD_FIRST in broken:
            after = _with(after, verdict._replace(at=At.WRITE))
        return Step(text, after)
    if not verdict.is_current and Rule.RESOURCE_VERSIONS not in broken:
        return Step(f"{text}: conflict", _with(idle, verdict._replace(at=At.READ)))
    read = verdict.read if Rule.RESOURCE_VERSIONS in broken else state.record
    record = record_after(read, presented, verdict.certificate, broken)
    after = idle._replace(
        record=record,
        verdicts=tuple(other._replace(is_current=False) for other in idle.verdicts),
    )
    if Rule.RECORD_FIRST not in broken:
        after = _with(after, verdict._replace(at=At.RELEASE, read=(), is_current=False))
    copies = {each for each in state.replaced.intersection(record) if each < (presented or 0)}
    return Step(f"{text}: {record}", after, Loss.COPY_ACCEPTED if copies else None)


def _decide(
    state: State, number: int, *, released: int | None = None, denied: bool = False
) -> State:
    """Write a certificate or a denial, unless another replica has decided."""
    if state.requests[number].is_decided:
        return state
    decided = state.requests[number]._replace(released=released, denied=denied)
    requests = (*state.requests[:number], decided, *state.requests[number + 1 :])
    return state._replace(requests=requests)


def _certificates(state: State) -> set[int]:
    """Return the certificates that may still matter."""
    read = {each for verdict in state.verdicts for each in (verdict.certificate, *verdict.read)}
    filed = {each for request in state.requests for each in (request.presented, request.released)}
    return {each for each in {state.held, *state.record, *read, *filed} if each is not None}


def _canonical(state: State) -> State:
    """Forget decided requests and certificates that nothing refers to, and close the gaps."""
    used = {state.active, *(verdict.request for verdict in state.verdicts)}
    kept = [n for n, it in enumerate(state.requests) if n in used or not it.is_decided]
    state = state._replace(requests=tuple(state.requests[n] for n in kept))
    requests = {old: new for new, old in enumerate(kept)}
    numbers: dict[int | None, Any] = {old: n for n, old in enumerate(sorted(_certificates(state)))}
    numbers[None] = None
    return State(
        record=tuple(numbers[each] for each in state.record),
        held=numbers[state.held],
        replaced=frozenset(numbers[each] for each in state.replaced if each in numbers),
        requests=tuple(
            it._replace(presented=numbers[it.presented], released=numbers[it.released])
            for it in state.requests
        ),
        active=None if state.active is None else requests[state.active],
        verdicts=tuple(
            sorted(
                it._replace(
                    request=requests[it.request],
                    certificate=numbers[it.certificate],
                    read=tuple(numbers[each] for each in it.read),
                )
                for it in state.verdicts
            )
        ),
    )


def _with(state: State, verdict: Verdict) -> State:
    """Add a verdict. Replicas are alike, so the order has no meaning."""
    return state._replace(verdicts=tuple(sorted((*state.verdicts, verdict))))


def _without(state: State, verdict: Verdict) -> State:
    """Make one replica idle."""
    verdicts = list(state.verdicts)
    verdicts.remove(verdict)
    return state._replace(verdicts=tuple(verdicts))


def _trace(reached: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    """Return the shortest trace to a state."""
    lines = []
    while (before := reached[state]) is not None:
        state, text = before
        lines.append(text)
    return lines[::-1]


@cache
def is_known(record: Record, presented: int | None, broken: frozenset[Rule]) -> bool:
    """Return whether K4 accepts the certificate that filed a request."""
    if not record and presented is not None and Rule.EMPTY_PASSES in broken:
        return False
    try:
        verify_known_credential(_id(presented), _attested_node(record))
    except RequesterCredentialUnknown:
        return False
    return True


@cache
def record_after(
    record: Record, presented: int | None, signed: int, broken: frozenset[Rule]
) -> Record:
    """Return the record with the next certificate."""
    ids = credential_ids_after_issue(
        _attested_node(record), _KEY, presented=_id(presented), issued=_id(signed)
    )
    after = tuple(int(each) for each in ids)
    if Rule.EARLIER_END in broken:
        after = (*record, signed)
    if Rule.LATER_STAY in broken and presented in record:
        after = (presented, signed)
    if Rule.PRESENTED_STAYS in broken:
        after = tuple(each for each in after if each != presented)
    return after[-2:] if Rule.MORE_THAN_TWO in broken else after


def _id(certificate: int | None) -> str:
    return "" if certificate is None else str(certificate)


def _attested_node(record: Record) -> AttestedNodeObject:
    return attested_node(
        ClusterKey(namespace="a", name="a"),
        "n",
        key=_KEY,
        credential_ids=tuple(map(_id, record)),
        not_after=datetime.max.replace(tzinfo=UTC),
        last_attested=datetime.min.replace(tzinfo=UTC),
    )


MUTATIONS = {
    Rule.RECORD_FIRST: Loss.LOCKOUT,
    Rule.RESOURCE_VERSIONS: Loss.LOCKOUT,
    Rule.PRESENTED_STAYS: Loss.LOCKOUT,
    Rule.LATER_STAY: Loss.LOCKOUT,
    Rule.MORE_THAN_TWO: Loss.LOCKOUT,
    Rule.EARLIER_END: Loss.COPY_ACCEPTED,
    Rule.EMPTY_PASSES: Loss.LOCKOUT,
}
"""Each broken rule, and what it costs."""
