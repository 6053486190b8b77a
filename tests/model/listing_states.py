"""States of the exploration of the credential list, and how they change and are compared."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tests.model.listing_tasks import Record, Task
from tests.model.node_requests import Request

START: Final = Record(0, (0,))


class State(NamedTuple):
    """The state of the whole model."""

    claim: Record = START
    entry: Record | None = START
    cache: Record = START
    """The claim in the caches of all replicas, which may be old."""
    backup: Record | None = None
    banned: bool = False
    cached_ban: bool = False
    bans: int = 0
    restores: int = 0
    held: int = 0
    """The node's certificate."""
    requests: tuple[Request, ...] = ()
    tasks: tuple[Task, ...] = ()
    is_unsettled: bool = False
    """Whether something is left for the next round of maintenance."""


def outdated(state: State, read: str) -> State:
    """Give the object that this call reads another resourceVersion."""
    tasks = (
        task._replace(
            seen=tuple(
                each._replace(is_current=False) if each.method == read else each
                for each in task.seen
            )
        )
        for task in state.tasks
    )
    return state._replace(tasks=tuple(tasks))


def rounds_incomplete(state: State) -> State:
    return state._replace(tasks=tuple(task._replace(is_complete=False) for task in state.tasks))


def canonical(state: State) -> State:
    """Forget what has no meaning any more, and number certificates and times without gaps.

    So the states are finite, and the node may renew any number of times.
    """
    used = {task.request for task in state.tasks}
    kept = [
        n for n, it in enumerate(state.requests) if n in used or it.is_awaited or not it.is_decided
    ]
    state = state._replace(
        requests=tuple(state.requests[n] for n in kept),
        tasks=tuple(
            _forget_versions(task)._replace(
                request=None if task.request is None else kept.index(task.request)
            )
            for task in state.tasks
        ),
    )
    ids: dict[int | None, Any] = {old: n for n, old in enumerate(sorted(certificates_of(state)))}
    ids[None] = None
    times = _close_gaps(sorted(_times(state)))

    def renumber(record: Record | None) -> Any:  # noqa: ANN401 - of the same type
        if record is None:
            return None
        return Record(times[record.time], tuple(ids[each] for each in record.ids))

    return state._replace(
        claim=renumber(state.claim),
        entry=renumber(state.entry),
        cache=renumber(state.cache),
        backup=renumber(state.backup),
        held=ids[state.held],
        requests=tuple(
            it._replace(presented=ids[it.presented], released=ids[it.released])
            for it in state.requests
        ),
        tasks=tuple(
            sorted(
                (
                    task._replace(
                        time=times.get(task.time, 0),
                        presented=ids[task.presented],
                        certificate=ids[task.certificate],
                        seen=tuple(it._replace(record=renumber(it.record)) for it in task.seen),
                    )
                    for task in state.tasks
                ),
                key=hash,
            )
        ),
    )


def _forget_versions(task: Task) -> Task:
    """Forget the versions of what a task writes no more."""
    if task.request is not None and not any(it.method == "set_key_holder" for it in task.seen):
        return task
    return task._replace(seen=tuple(it._replace(is_current=True) for it in task.seen))


def _close_gaps(times: list[int]) -> dict[int, int]:
    """Return new times in the same order; times that follow each other still do, and no others."""
    closed = {times[0]: 0}
    for before, time in pairwise(times):
        closed[time] = closed[before] + min(2, time - before)
    return closed


def records_of(state: State) -> Iterator[Record]:
    known = (it.record for task in state.tasks for it in task.seen)
    for record in (state.claim, state.entry, state.cache, state.backup, *known):
        if record is not None:
            yield record


def _times(state: State) -> set[int]:
    times = {task.time for task in state.tasks if task.request is not None}
    return times | {record.time for record in records_of(state)}


def certificates_of(state: State) -> set[int]:
    """Return the certificates that may still matter."""
    filed = {it.presented for it in state.requests}
    released = {it.released for it in state.requests}
    signed = {task.certificate for task in state.tasks}
    recorded = {each for record in records_of(state) for each in record.ids}
    return {it for it in {state.held, *filed, *released, *signed, *recorded} if it is not None}
