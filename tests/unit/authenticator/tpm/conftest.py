"""A clock that only tests move, so that a busy machine does not matter."""

import pytest

from authenticator.tpm import bounded_calls


class MovedTime:
    """Replaces the module `time` in `bounded_calls`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the seconds of all sleeps."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move the clock without a real wait."""
        self.now += seconds


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> MovedTime:
    moved_time = MovedTime()
    monkeypatch.setattr(bounded_calls, "time", moved_time)
    return moved_time
