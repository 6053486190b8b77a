"""Calls into the TSS2 libraries that end with the deadline.

The time limits of the libraries apply to few TCTIs, and the device of the kernel blocks inside one
system call. Calls therefore run in a separate thread. A call that does not return by the deadline
is abandoned with its thread, and the connection is not used again. The thread is a daemon: it does
not keep the process alive, and the end of the process closes the device.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from authenticator.errors import TpmBusy
from authenticator.model import Deadline, backoff

GRACE_SECONDS: Final = 2.0
"""For the cleanup after the deadline: a flush takes a TPM milliseconds."""

_INITIAL_PAUSE: Final = 0.02
_MAX_PAUSE: Final = 1.0
"""Seconds between two attempts. In each of them the libraries make five."""

_T = TypeVar("_T")
_Call = Callable[[], None]


class BoundedCalls:
    """One thread that makes one call at a time, for no longer than the deadline lasts."""

    def __init__(self, deadline: Deadline, *, is_retryable: Callable[[Exception], bool]) -> None:
        """Make calls until `deadline`, and repeat those whose error `is_retryable`."""
        self._deadline = deadline
        self._is_retryable = is_retryable
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._abandoned = False
        Thread(target=_make_calls, args=(self._calls,), name="tpm", daemon=True).start()

    def run(self, call: Callable[[], _T], *, at_least: float = 0.0) -> _T:
        """Make a call, and repeat it while its error is retryable and there is time.

        The call gets `at_least` seconds, even after the deadline. Raises `TpmBusy` if a call does
        not return in time, else what the last call raised.
        """
        end = time.monotonic() + max(self._deadline.remaining(), at_least)
        failures = 0
        while True:
            pause = backoff(failures, _INITIAL_PAUSE, _MAX_PAUSE)
            try:
                return self._once(call, end - time.monotonic())
            except Exception as error:
                if not self._is_retryable(error) or end - time.monotonic() <= pause:
                    raise
            time.sleep(pause)
            failures += 1

    def _once(self, call: Callable[[], _T], seconds: float) -> _T:
        if self._abandoned or seconds <= 0:
            raise TpmBusy("no time is left for a TPM command: the next call tries again")
        future: Future[_T] = Future()
        self._calls.put(lambda: _complete(future, call))
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            self._abandoned = True
            raise TpmBusy(
                "the TPM did not answer in time: check the kernel log for TPM errors, and whether"
                " other programs keep the TPM busy"
            ) from None

    def close(self) -> None:
        """End the thread when it has made its calls."""
        self._calls.put(None)


def _make_calls(calls: "SimpleQueue[_Call | None]") -> None:
    while call := calls.get():
        call()


def _complete(future: "Future[_T]", call: Callable[[], _T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
        future.set_exception(error)
