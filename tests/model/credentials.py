"""K4 and the record of a node's certificates, explored with the signer's own functions.

One node, its TPM, and two replicas of the signer. Each step makes one API call of `write_claims` or
of the release, and a replica may crash before each. Two reads that follow each other are one step,
and so are K2 and K3, and the last read of the claim and the release.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.model.certificates import Outcome, Record, Seen, Task, next_of, perform
from tests.model.credential_rules import REPLACED, Rule
from tests.model.node_requests import (
    Request,
    decide,
    trace_to,
    with_request,
    with_task,
    without_task,
)
from tests.model.replay import Call

_REPLICAS = 2
_MAX_CERTIFICATES = 4
_MAX_REQUESTS = 2


class Loss(StrEnum):
    """What must not happen."""

    LOCKOUT = "K4 refuses the certificate that the node has"
    COPY_ACCEPTED = "K4 accepts a certificate after the node has renewed with a later one"
    UNNAMED = "a certificate is released that the record does not name"


class Setting(StrEnum):
    """How many requests the node waits for at one time. Another one may be given up."""

    ONE = "one exchange"
    TWO = "two exchanges"


class State(NamedTuple):
    """The state of the whole model."""

    record: Record
    held: int | None = 0
    """The node's certificate; `None` while it has only a bootstrap token."""
    replaced: frozenset[int] = frozenset()
    """Recorded certificates that the node has had before. Each may have been copied."""
    requests: tuple[Request, ...] = ()
    tasks: tuple[Task, ...] = ()


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
def explore(
    setting: Setting, broken: frozenset[Rule] = frozenset(), until: Loss | None = None
) -> Result:
    """Explore every state, from a recorded certificate and from one of kubeadm.

    With `until`, stop when that loss is found.
    """
    with ExitStack() as stack:
        for rule in broken:
            for target, name, value in REPLACED.get(rule, ()):
                stack.enter_context(patch.object(target, name, value))
        next_of.cache_clear()
        stack.callback(next_of.cache_clear)
        return _explore(setting, broken, until)


def _explore(setting: Setting, broken: frozenset[Rule], until: Loss | None) -> Result:
    starts = [State(record=(0,)), State(record=())]
    reached: dict[State, tuple[State, str] | None] = dict.fromkeys(starts)
    todo, lost = list(starts), dict[Loss, list[str]]()
    for state in todo:  # The list grows during the loop
        for step in steps(setting, state, broken):
            if step.loss is not None and step.loss not in lost:
                lost[step.loss] = [*trace_to(state, reached), step.text]
            after = _canonical(step.after)
            if after not in reached:
                reached[after] = (state, step.text)
                todo.append(after)
        if until in lost:
            break
    return Result(len(todo), lost)


def steps(setting: Setting, state: State, broken: frozenset[Rule]) -> Iterator[Step]:
    """Return every step that is possible next."""
    yield from _node(setting, state)
    yield from _picks(state, broken)
    for task in set(state.tasks):
        yield Step(f"the replica with {task.certificate} crashes", without_task(state, task))
        yield _work(state, task, broken)


def _node(setting: Setting, state: State) -> Iterator[Step]:
    """Let the node file, receive, give up a request, and lose its disk."""
    if state.held is not None and setting is Setting.ONE:
        given_up = tuple(each._replace(is_awaited=False) for each in state.requests)
        replaced = state.replaced | {state.held}
        lost = state._replace(held=None, replaced=replaced, requests=given_up)
        yield Step("the node loses its disk", lost)
    awaited = sum(each.is_awaited for each in state.requests)
    if awaited < (2 if setting is Setting.TWO else 1) and len(state.requests) < _MAX_REQUESTS:
        filed = state._replace(requests=(*state.requests, Request(state.held)))
        yield Step(f"the node files request {len(state.requests)} with {state.held}", filed)
    for number, request in enumerate(state.requests):
        if not request.is_awaited:
            continue
        over = with_request(state, number, request._replace(is_awaited=False))
        yield Step(f"the node gives up request {number}", over)
        if request.released is not None:
            former = frozenset() if state.held is None else frozenset({state.held})
            after = over._replace(held=request.released, replaced=state.replaced | former)
            yield Step(f"the node receives {request.released}", after)


def _picks(state: State, broken: frozenset[Rule]) -> Iterator[Step]:
    """Let an idle replica sign a certificate for an undecided request."""
    signed = max(_certificates(state), default=-1) + 1
    if len(state.tasks) == _REPLICAS or signed == _MAX_CERTIFICATES:
        return
    for number, request in enumerate(state.requests):
        if not request.is_decided:
            begun = state
            if Rule.RECORD_FIRST in broken:
                begun = decide(state, number, released=signed)
            after = with_task(begun, Task(number, request.presented, signed))
            yield Step(f"a replica signs {signed} for request {number}", after)


def _work(state: State, task: Task, broken: frozenset[Rule]) -> Step:
    """Make the calls of one step of a task."""
    idle, is_blind = without_task(state, task), Rule.RESOURCE_VERSIONS in broken
    call = next_of(task, is_blind=is_blind)
    assert isinstance(call, Call)
    text, loss = f"the replica with {task.certificate}:", None
    while True:
        text += f" {call.method}"
        if call.method == "set_certificate":
            idle, loss = _release(idle, task)
            seen = Seen(call.method)
        else:
            effect = perform(call, idle.record)
            if effect is None:
                return Step(f"{text}, conflict", with_task(idle, task._replace(seen=())))
            seen, record = effect
            if call.method == "replace_attested_node":
                text += f" {record}"
                copies = idle.replaced.intersection(record)
                if any(each < (task.presented or 0) for each in copies):
                    loss = Loss.COPY_ACCEPTED
            if call.method in ("replace_attested_node", "set_key_holder"):
                outdated = tuple(each.outdated() for each in idle.tasks)
                idle = idle._replace(record=record, tasks=outdated)
        task = task._replace(seen=(*task.seen, seen))
        following = next_of(task, is_blind=is_blind)
        if isinstance(following, Outcome):
            after, found = _finish(idle, task, following, broken)
            return Step(f"{text}, {following.text}", after, loss or found)
        if following.method == "replace_attested_node":
            return Step(text, with_task(idle, task), loss)
        call = following


def _release(idle: State, task: Task) -> tuple[State, Loss | None]:
    """Write the certificate, unless another replica has decided."""
    is_open = not idle.requests[task.request].is_decided
    loss = Loss.UNNAMED if is_open and task.certificate not in idle.record else None
    return decide(idle, task.request, released=task.certificate), loss


def _finish(
    idle: State, task: Task, outcome: Outcome, broken: frozenset[Rule]
) -> tuple[State, Loss | None]:
    """Continue with what follows a function of the signer."""
    if outcome.is_denied:
        loss = Loss.LOCKOUT if idle.requests[task.request].is_awaited else None
        return decide(idle, task.request, denied=True), loss
    if task.is_claimed or Rule.RECORD_FIRST in broken:
        return idle, None
    return with_task(idle, task._replace(is_claimed=True, seen=())), None


def _certificates(state: State) -> set[int]:
    """Return the certificates that may still matter."""
    filed = {each for request in state.requests for each in (request.presented, request.released)}
    known = {each for task in state.tasks for seen in task.seen for each in seen.record}
    signed = {task.certificate for task in state.tasks}
    return {it for it in {state.held, *state.record, *filed, *known, *signed} if it is not None}


def _canonical(state: State) -> State:
    """Forget decided requests and certificates that nothing refers to, and close the gaps.

    So the states are finite, and the node may renew any number of times.
    """
    used = {task.request for task in state.tasks}
    kept = [
        n for n, it in enumerate(state.requests) if n in used or it.is_awaited or not it.is_decided
    ]
    requests = {old: new for new, old in enumerate(kept)}
    numbers: dict[int | None, Any] = {old: n for n, old in enumerate(sorted(_certificates(state)))}
    numbers[None] = None
    return State(
        record=tuple(numbers[each] for each in state.record),
        held=numbers[state.held],
        replaced=frozenset(numbers[each] for each in state.replaced if each in numbers),
        requests=tuple(
            it._replace(presented=numbers[it.presented], released=numbers[it.released])
            for it in (state.requests[n] for n in kept)
        ),
        tasks=tuple(
            sorted(
                (
                    task.renumbered(numbers)._replace(request=requests[task.request])
                    for task in state.tasks
                ),
                key=hash,
            )
        ),
    )


LOSSES = {
    Setting.ONE: frozenset[Loss](),
    Setting.TWO: frozenset({Loss.LOCKOUT, Loss.COPY_ACCEPTED}),
}
"""What is lost with every rule kept."""

MUTATIONS = (
    (Rule.RECORD_FIRST, Setting.ONE, Loss.LOCKOUT),
    (Rule.RESOURCE_VERSIONS, Setting.ONE, Loss.LOCKOUT),
    (Rule.PRESENTED_STAYS, Setting.ONE, Loss.LOCKOUT),
    (Rule.LATER_STAY, Setting.ONE, Loss.LOCKOUT),
    (Rule.MORE_THAN_TWO, Setting.ONE, Loss.LOCKOUT),
    (Rule.EARLIER_END, Setting.ONE, Loss.COPY_ACCEPTED),
    (Rule.EMPTY_PASSES, Setting.ONE, Loss.LOCKOUT),
    (Rule.CLAIM_READ_LAST, Setting.TWO, Loss.UNNAMED),
)
"""Each broken rule, and what it costs in a setting that otherwise keeps it."""
