"""Runs a function of the signer call by call, so that other steps fit between its calls.

A function cannot be copied in the middle. So a step runs it from the start: its earlier calls get
the answers that they got before, and the next one stops it. The same answers always lead to the
same call, so the result is kept.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Call(NamedTuple):
    """A call to an API server or to a cache that has no answer yet."""

    method: str
    arguments: tuple[Any, ...]


class _Unanswered(BaseException):
    """Ends a function at its next call; no `except Exception` of the signer catches it."""

    def __init__(self, call: Call) -> None:
        self.call = call


class Replay:
    """An API client with a list of answers: every method is a call. An answer may be an error."""

    def __init__(self, answers: Sequence[object]) -> None:
        self._answers = iter(answers)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return the method of that name."""

        def call(*arguments: object) -> object:
            for answer in self._answers:
                if isinstance(answer, Exception):
                    raise answer
                return answer
            raise _Unanswered(Call(method, arguments))

        return call


def next_call(function: Callable[[Any], T], answers: Sequence[object]) -> Call | T:
    """Return the call that has no answer yet, or the result. Raises what the function raises."""
    try:
        return function(Replay(answers))
    except _Unanswered as unanswered:
        return unanswered.call
