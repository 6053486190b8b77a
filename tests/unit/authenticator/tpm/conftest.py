"""Time that passes when a test says so, however busy the machine is."""

import pytest

from authenticator.tpm import bounded_calls


class MovedTime:
    """Stands for the module `time` where calls into a TPM are bounded."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the seconds that were slept."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass without waiting for it."""
        self.now += seconds


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> MovedTime:
    """Put such time in the place of the machine's."""
    made = MovedTime()
    monkeypatch.setattr(bounded_calls, "time", made)
    return made
