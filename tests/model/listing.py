"""The credential list, explored with the signer's own functions.

One node, its claim, its entry in the list, and replicas that answer its requests and maintain the
list. Each step makes one write, or the reads between two writes, and a replica may crash before
each. Operators ban the key and end the ban, and the claim may be restored from a backup.
"""

from collections.abc import Iterator
from enum import StrEnum
from random import Random
from typing import Final, NamedTuple

from signer.verify.requests.credentials import MAX_CREDENTIAL_IDS
from tests.model.listing_rules import Rule, running
from tests.model.listing_states import (
    START,
    State,
    canonical,
    certificates_of,
    outdated,
    records_of,
    rounds_incomplete,
)
from tests.model.listing_tasks import CACHED, Outcome, Record, Seen, Task, next_of, perform
from tests.model.listing_tasks import published as published_by
from tests.model.node_requests import (
    Request,
    decide,
    trace_to,
    with_request,
    with_task,
    without_task,
)
from tests.model.replay import Call

DEPTH: Final = 12
"""Steps of which every order is explored."""
_MAX_DEPTH: Final = 16


class Loss(StrEnum):
    """What must not happen. The last four count only when nobody's writes are under way."""

    DENIED = "K4 refuses the certificate that the node has"
    UNLISTED = "a certificate is released that the list does not name"
    LOCKED_OUT = "the list does not name the certificate that the node has"
    UNRESTRICTED = "the list has no entry for the node"
    BANNED_WRITES = "the list names a certificate of a banned key"
    OLD_WRITES = "the list names a certificate that the claim has ended"


class Bounds(NamedTuple):
    """How much happens."""

    replicas: int
    requests: int
    certificates: int
    bans: int = 0
    """Changes of the ban."""
    restores: int = 0


class Setting(StrEnum):
    """What happens besides renewals and crashes."""

    RENEWALS = "renewals"
    BANS = "bans"
    RESTORE = "a restore"


BOUNDS: Final = {
    Setting.RENEWALS: Bounds(replicas=2, requests=2, certificates=4),
    Setting.BANS: Bounds(replicas=2, requests=1, certificates=3, bans=2),
    Setting.RESTORE: Bounds(replicas=2, requests=1, certificates=4, bans=1, restores=1),
}
WALKS: Final = {
    Setting.RENEWALS: Bounds(replicas=4, requests=4, certificates=MAX_CREDENTIAL_IDS),
    Setting.BANS: Bounds(replicas=3, requests=3, certificates=7, bans=1000),
    Setting.RESTORE: Bounds(replicas=3, requests=3, certificates=7, bans=1, restores=1000),
}
"""The bounds of random walks, which go deeper. A claim has room for all certificates that matter:
beyond its limit it forgets one that the node may have."""


_RENEWED: Final = Record(2, (0, 1))
STARTS: Final = {
    Setting.RENEWALS: State(),
    Setting.BANS: State(),
    Setting.RESTORE: State(claim=_RENEWED, entry=_RENEWED, cache=_RENEWED, backup=START, held=1),
}
"""The restore is of a backup that was made before the last renewal."""


class Step(NamedTuple):
    """One transition."""

    text: str
    after: State
    loss: Loss | None = None


class Result(NamedTuple):
    """The number of states, with a trace for each loss."""

    states: int
    lost: dict[Loss, list[str]]


def explore(
    setting: Setting, broken: frozenset[Rule] = frozenset(), until: Loss | None = None
) -> Result:
    """Explore every state of the first `DEPTH` steps. With `until`, stop when that loss is found.

    With a broken rule, there is no limit of steps.
    """
    start = STARTS[setting]
    reached: dict[State, tuple[State, str] | None] = {start: None}
    last, lost = [start], dict[Loss, list[str]]()
    with running(broken):
        for _ in range(_MAX_DEPTH if broken else DEPTH):
            before, last = last, []
            for state in before:
                for step in steps(BOUNDS[setting], state):
                    after = canonical(step.after)
                    for loss in losses(step._replace(after=after)):
                        if loss not in lost:
                            lost[loss] = [*trace_to(state, reached), step.text]
                    if after not in reached:
                        reached[after] = (state, step.text)
                        last.append(after)
                if until in lost:
                    return Result(len(reached), lost)
    return Result(len(reached), lost)


def walk(setting: Setting, seed: int, length: int) -> Result:
    """Take random steps; stop at a loss."""
    random, state, trace = Random(seed), STARTS[setting], list[str]()
    with running(frozenset()):
        for _ in range(length):
            step = random.choice(sorted(steps(WALKS[setting], state), key=lambda each: each.text))
            state = canonical(step.after)
            trace.append(step.text)
            for loss in losses(step._replace(after=state)):
                return Result(len(trace), {loss: trace})
    return Result(len(trace), {})


def losses(step: Step) -> Iterator[Loss]:
    """Yield what a step loses."""
    if step.loss is not None:
        yield step.loss
    state = step.after
    if not _is_settled(state):
        return
    if state.entry is None:
        yield Loss.UNRESTRICTED
    elif state.banned:
        if state.entry.ids:
            yield Loss.BANNED_WRITES
    elif state.held not in state.entry.ids:
        yield Loss.LOCKED_OUT
    elif state.claim.time >= state.entry.time and set(state.entry.ids) - set(state.claim.ids):
        yield Loss.OLD_WRITES


def _is_settled(state: State, without: Task | None = None) -> bool:
    """Return whether no replica is between its first write and its end, or left one behind."""
    writing = (task for task in state.tasks if task is not without)
    return not state.is_unsettled and not any(task.has_written for task in writing)


def steps(bounds: Bounds, state: State) -> Iterator[Step]:
    """Return every step that is possible next."""
    yield from _node(bounds, state)
    yield from _others(bounds, state)
    yield from _begin(bounds, state)
    for task in set(state.tasks):
        crashed = _left(without_task(state, task), task)
        yield Step(f"{_label(task)} crashes", crashed)
        yield _work(state, task)


def _node(bounds: Bounds, state: State) -> Iterator[Step]:
    """Let the node file, receive, and give up a request. It waits for one at a time."""
    waits = any(each.is_awaited for each in state.requests)
    if not waits and len(state.requests) < bounds.requests:
        filed = state._replace(requests=(*state.requests, Request(state.held)))
        yield Step(f"the node files request {len(state.requests)} with {state.held}", filed)
    for number, request in enumerate(state.requests):
        if not request.is_awaited:
            continue
        over = with_request(state, number, request._replace(is_awaited=False))
        yield Step(f"the node gives up request {number}", over)
        if request.released is not None:
            received = over._replace(held=request.released)
            yield Step(f"the node receives {request.released}", received)


def _others(bounds: Bounds, state: State) -> Iterator[Step]:
    """Let operators ban the key or end the ban, caches follow, and the claim go back."""
    if state.bans < bounds.bans:
        ban = not state.banned
        changed = rounds_incomplete(outdated(state, "endorsement_key"))
        changed = changed._replace(banned=ban, bans=state.bans + 1, is_unsettled=True)
        yield Step("the key is banned" if ban else "the ban ends", changed)
    if (state.cache, state.cached_ban) != (state.claim, state.banned):
        current = state._replace(cache=state.claim, cached_ban=state.banned)
        yield Step("the caches become current", current)
    if state.restores < bounds.restores:
        if state.backup is None:
            yield Step("the claim is backed up", state._replace(backup=state.claim))
        elif not state.tasks and not state.requests:
            back = state._replace(
                claim=state.backup, backup=None, restores=state.restores + 1, is_unsettled=True
            )
            yield Step(f"the claim is restored to {state.backup.ids}", back)


def _begin(bounds: Bounds, state: State) -> Iterator[Step]:
    """Let an idle replica take up a request, or begin a round of maintenance."""
    if len(state.tasks) == bounds.replicas:
        return
    # Replicas that begin before the next write do so in the same second.
    time = max(record.time for record in records_of(state)) + 1
    signed = max(certificates_of(state)) + 1
    for number, request in enumerate(state.requests):
        if not request.is_decided and signed < bounds.certificates:
            task = Task(time, number, request.presented, signed)
            yield Step(f"a replica signs {signed} for request {number}", with_task(state, task))
    if not any(task.request is None for task in state.tasks):
        yield Step("a round of maintenance begins", with_task(state, Task(0)))


def _work(state: State, task: Task) -> Step:
    """Make the calls of one step of a task."""
    idle = without_task(state, task)
    call = next_of(task)
    assert isinstance(call, Call)
    text, loss = f"{_label(task)}:", None
    while True:
        text += f" {call.method}"
        made = _make(idle, task, call)
        if made is None:
            return Step(f"{text}, conflict", with_task(idle, task.without_attempt()))
        if call.method == "set_certificate" and idle is not made[0]:
            loss = _unlisted(idle, task)
        idle, seen = made
        task = task._replace(seen=(*task.seen, seen))
        if call.method == "cached_node":
            is_current = (idle.cache, idle.cached_ban) == (idle.claim, idle.banned)
            task = task._replace(is_complete=is_current)
        following = next_of(task)
        if isinstance(following, Outcome):
            after, found = _finish(idle, task, following)
            return Step(f"{text}, {following.text}", after, loss or found)
        if _is_interrupted(task, call.method, following.method):
            return Step(text, with_task(idle, task), loss)
        call = following


def _is_interrupted(task: Task, before: str, method: str) -> bool:
    """Return whether other steps fit between two calls."""
    if method in {"replace_attested_node", "publish"} or before == "publish":
        return True
    if before in CACHED:
        return method not in CACHED
    # The last read of the claim is for the release.
    listed = any(each.method == "publish" for each in task.seen)
    return before == "endorsement_key" and method == "attested_node" and listed


def _make(state: State, task: Task, call: Call) -> tuple[State, Seen] | None:
    """Make one call; return `None` if it conflicts."""
    method = call.method
    if method == "read":
        return state, Seen(method, state.entry)
    if method in CACHED:
        return state, Seen(method, state.cache, state.cached_ban)
    if method == "publish":
        entry = published_by(call)
        return state._replace(entry=entry), Seen(method)
    if method == "set_certificate":
        assert task.request is not None
        return decide(state, task.request, released=task.certificate), Seen(method)
    effect = perform(call, state.claim, banned=state.banned)
    if effect is None:
        return None
    seen, claim = effect
    if method == "replace_attested_node":
        state = outdated(state._replace(claim=claim), "attested_node")
    elif method == "set_key_holder":
        state = outdated(state, "endorsement_key")
        # It is not written again, so the versions have no meaning any more.
        seen = seen._replace(banned=False)
    return state, seen


def _unlisted(state: State, task: Task) -> Loss | None:
    """Return the loss if the list lacks a certificate that is released, and no key is banned."""
    if state.banned or not _is_settled(state):
        return None
    listed = () if state.entry is None else state.entry.ids
    return None if task.certificate in listed else Loss.UNLISTED


def _finish(idle: State, task: Task, outcome: Outcome) -> tuple[State, Loss | None]:
    """Continue with what follows a function of the signer."""
    if task.request is None:
        return (idle._replace(is_unsettled=False) if task.is_complete else idle), None
    if not outcome.is_denied:
        return (idle if outcome.text == "done" else _left(idle, task)), None
    awaited = idle.requests[task.request].is_awaited
    denied = decide(_left(idle, task), task.request, denied=True)
    return denied, Loss.DENIED if outcome.is_unknown and awaited else None


def _left(state: State, task: Task) -> State:
    """Leave to the next round of maintenance what a task has written."""
    return rounds_incomplete(state._replace(is_unsettled=True)) if task.has_written else state


def _label(task: Task) -> str:
    return "the round" if task.request is None else f"the replica with {task.certificate}"


MUTATIONS = (
    (Rule.LISTED_FIRST, Setting.RENEWALS, Loss.UNLISTED),
    (Rule.READ_AGAIN, Setting.BANS, Loss.BANNED_WRITES),
    (Rule.LIVE_READS, Setting.BANS, Loss.BANNED_WRITES),
    (Rule.LATER_TIME, Setting.RENEWALS, Loss.LOCKED_OUT),
    (Rule.OLDER_CLAIM, Setting.RESTORE, Loss.LOCKED_OUT),
    (Rule.OLDER_BAN, Setting.RESTORE, Loss.BANNED_WRITES),
    (Rule.BAN_OVER, Setting.BANS, Loss.LOCKED_OUT),
    (Rule.ENTRY_KNOWN, Setting.RESTORE, Loss.DENIED),
    (Rule.ENTRY_STAYS, Setting.RESTORE, Loss.LOCKED_OUT),
)
"""Each broken rule, and what it costs."""
