"""Pauses that grow, end at a maximum and are spread by jitter."""

import pytest

from signer.fairness.backoff import Backoff

BACKOFF = Backoff(initial=0.25, maximum=10.0)


def test_pause_doubles_up_to_the_maximum() -> None:
    pauses = [BACKOFF.delay(failures, 0.0) for failures in range(8)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_many_failures_do_not_overflow() -> None:
    assert BACKOFF.delay(10**6, 0.0) == 10.0


@pytest.mark.parametrize("failures", [0, 3, 100])
def test_jitter_shortens_the_pause_by_up_to_half(failures: int) -> None:
    whole = BACKOFF.delay(failures, 0.0)
    assert BACKOFF.delay(failures, 1.0) == whole / 2
    assert whole / 2 < BACKOFF.delay(failures, 0.5) < whole
