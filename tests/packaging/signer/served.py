"""Requests for a kind whose CRD was just created or changed."""

from collections.abc import Callable
from typing import Final, TypeVar

from tests.harness.client import ApiError
from tests.harness.process import wait_until

NOT_SERVED: Final = {404, 429, 503}
"""Status codes of an API server that does not serve a kind yet."""

T = TypeVar("T")


def when_served(request: Callable[[], T]) -> T:
    """Send a request until the API server serves its kind, and return the answer."""
    answers: list[T] = []

    def is_answered() -> bool:
        try:
            answers.append(request())
        except ApiError as error:
            if error.code not in NOT_SERVED:
                raise
            return False
        return True

    wait_until(is_answered, what="the API server serves the kind")
    return answers[0]
