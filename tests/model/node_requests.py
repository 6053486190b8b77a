"""What the models of a node's certificates share: its requests, tasks of replicas, and traces."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self, TypeVar


class Request(NamedTuple):
    """A CSR of the node."""

    presented: int | None
    """The certificate that filed it; `None` for a bootstrap token."""
    is_awaited: bool = True
    released: int | None = None
    denied: bool = False

    @property
    def is_decided(self) -> bool:
        """Return whether it has a certificate or is denied."""
        return self.denied or self.released is not None


class _State(Protocol):
    @property
    def requests(self) -> tuple[Request, ...]: ...

    @property
    def tasks(self) -> tuple[Any, ...]: ...

    def _replace(self, *args: Any, **changes: Any) -> Self: ...  # noqa: ANN401 - as a NamedTuple


S = TypeVar("S", bound=_State)
H = TypeVar("H")


def decide(state: S, number: int, *, released: int | None = None, denied: bool = False) -> S:
    """Write a certificate or a denial, unless another replica has decided."""
    if state.requests[number].is_decided:
        return state
    decided = state.requests[number]._replace(released=released, denied=denied)
    return with_request(state, number, decided)


def with_request(state: S, number: int, request: Request) -> S:
    """Replace a request."""
    requests = (*state.requests[:number], request, *state.requests[number + 1 :])
    return state._replace(requests=requests)


def with_task(state: S, task: object) -> S:
    """Add a task. Replicas are alike, so the order has no meaning."""
    return state._replace(tasks=(*state.tasks, task))


def without_task(state: S, task: object) -> S:
    """Make one replica idle."""
    tasks = list(state.tasks)
    tasks.remove(task)
    return state._replace(tasks=tuple(tasks))


def trace_to(state: H, reached: Mapping[H, tuple[H, str] | None]) -> list[str]:
    """Return the texts of the steps to a state, from where each state was reached first."""
    lines = []
    while (before := reached[state]) is not None:
        state, text = before
        lines.append(text)
    return lines[::-1]
