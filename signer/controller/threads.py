"""Threads that repeat a step, and whether all threads that matter make progress.

The probes and the Lease of a replica depend on that. A replica whose threads hang would otherwise
keep its Clusters and serve none of them.
"""

import logging
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Final

from signer.logs import run_logged

_logger = logging.getLogger(__name__)

MAX_SECONDS: Final = 900.0
"""Seconds for one step of a thread. A call to an API server ends within half a minute, and a step
has several: a slow API server must not end this process."""

MAX_SILENCE_SECONDS: Final = 180.0
"""Seconds without a successful request to the management cluster. A replica asks for Leases every
two seconds, and for the challenge keys each minute."""


MAX_WAIT_SECONDS: Final = 60.0
"""Seconds for which a task may wait for what tenants share. Tenants take turns of milliseconds."""


class Loop:
    """Repeats a step on a thread until `stop` is set, and then takes the last step."""

    def __init__(  # noqa: PLR0913 - the last two are options
        self,
        name: str,
        step: Callable[[], object],
        *,
        pause: Callable[[], float],
        stop: Event,
        last: Callable[[], object] | None = None,
        from_start: bool = False,
    ) -> None:
        """Call `pause` before each step for the seconds until then.

        They count from the end of the step before, or from its start.
        """
        self.name = name
        self._step = step
        self._pause = pause
        self._stop = stop
        self._last = last
        self._from_start = from_start
        self._began = 0.0
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._is_started = False

    def start(self) -> None:
        """Start the thread."""
        self._began = time.monotonic()
        self._thread.start()
        self._is_started = True

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, but at most this time."""
        self._thread.join(seconds)

    def is_healthy(self) -> bool:
        """Return whether the thread runs, or must not, and its step does not take too long.

        A thread that is not started yet is healthy: other threads ask while the process starts.
        """
        if self._stop.is_set() or not self._is_started:
            return True
        return self._thread.is_alive() and time.monotonic() - self._began < MAX_SECONDS

    def _seconds_to_wait(self) -> float:
        passed = time.monotonic() - self._began if self._from_start else 0.0
        return max(0.0, self._pause() - passed)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds_to_wait()):
            self._began = time.monotonic()
            run_logged(self._step, self.name)
        if self._last is not None:
            run_logged(self._last, f"end of {self.name}")


class SharedWaits:
    """How long tasks have waited for what tenants share: places, threads and workers."""

    def __init__(self, waits: Mapping[str, Callable[[], float]]) -> None:
        """Ask each function, by what is waited for, for the seconds of the oldest task."""
        self._waits = waits

    def seconds(self) -> Mapping[str, float]:
        """Return the seconds for which the oldest task has waited, by what it waits for."""
        return {shared: wait() for shared, wait in self._waits.items()}

    def are_short(self) -> bool:
        """Return whether no task has waited for too long."""
        return max(self.seconds().values()) < MAX_WAIT_SECONDS


class Contact:
    """Whether requests to the management cluster succeed; any thread may call `is_good`."""

    def __init__(self, succeeded_at: Callable[[], float]) -> None:
        """Call `succeeded_at` for when a request last succeeded, on the monotonic clock."""
        self._succeeded_at = succeeded_at
        self._was_good = True

    def is_good(self) -> bool:
        """Return whether a request succeeded in the last minutes; log when that changes."""
        good = time.monotonic() - self._succeeded_at() < MAX_SILENCE_SECONDS
        changed, self._was_good = good != self._was_good, good
        if changed and good:
            _logger.info("requests to the management cluster succeed again")
        elif changed:
            message = (
                "this replica is not ready: its API server must answer, the kubeconfig or service"
                " account must have the server's CA, and the credential must be valid"
            )
            fields = {"message": message, "alarm": True}
            _logger.error("no request to the management cluster succeeds", extra={"fields": fields})
        return good


class Health:
    """The checks of all threads that matter; any thread may call `is_good`."""

    def __init__(self, stop: Event) -> None:
        """Expect no progress after `stop` is set."""
        self._stop = stop
        self._checks: dict[str, Callable[[], bool]] = {}
        self._failing: list[str] = []

    def add(self, name: str, check: Callable[[], bool]) -> None:
        """Let the health depend on a check."""
        self._checks[name] = check

    def is_good(self) -> bool:
        """Return whether every check is good; log an alarm when another set of checks fails."""
        if self._stop.is_set():
            return True
        failing = [name for name, check in self._checks.items() if not check()]
        if failing != self._failing:
            self._failing = failing
            if failing:
                fields = {"threads": failing, "alarm": True}
                _logger.error("threads make no progress", extra={"fields": fields})
            else:
                _logger.info("all threads make progress again")
        return not failing
