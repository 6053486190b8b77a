"""Calls into the TSS2 libraries that end in time, although those wait for a TPM for ever.

The libraries' time limits hold for few ways to a TPM, and the kernel's device waits inside one
system call. So calls run in a thread of their own; a call that outlives the deadline is left
behind with its thread, and nothing more is asked of that connection. The thread is a daemon: it
does not keep the process alive, and the end of the process closes the device.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from authenticator.errors import TpmBusy
from authenticator.model import Deadline

GRACE_SECONDS: Final = 2.0
"""For tidying up when the deadline has passed: a flush takes a TPM milliseconds."""

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
"""Seconds between two attempts; the libraries make five by themselves in each."""

_T = TypeVar("_T")
_Call = Callable[[], None]


class BoundedCalls:
    """One thread that makes one call at a time, for no longer than the deadline lasts."""

    def __init__(self, deadline: Deadline, *, again: Callable[[Exception], bool]) -> None:
        """Make calls until `deadline`; `again` tells which errors may pass in a moment."""
        self._deadline = deadline
        self._again = again
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._left_behind = False
        Thread(target=_make, args=(self._calls,), name="tpm", daemon=True).start()

    def run(self, call: Callable[[], _T], *, at_least: float = 0.0) -> _T:
        """Make a call, and again for as long as its error may pass and time is left.

        `at_least` seconds are taken even when less is left. Raises TpmBusy when a call does not
        end in time, else what the last one raised.
        """
        end = time.monotonic() + max(self._deadline.remaining(), at_least)
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(call, end - time.monotonic())
            except Exception as error:
                if not self._again(error) or end - time.monotonic() <= pause:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, call: Callable[[], _T], seconds: float) -> _T:
        if self._left_behind or seconds <= 0:
            raise TpmBusy("no time is left to ask the TPM: the next call tries again")
        future: Future[_T] = Future()
        self._calls.put(lambda: _settle(future, call))
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            self._left_behind = True
            raise TpmBusy(
                "the TPM did not answer in time: look for TPM errors in the kernel's log, and for"
                " other programs that keep it busy"
            ) from None

    def close(self) -> None:
        """End the thread once it has nothing left to do."""
        self._calls.put(None)


def _make(calls: "SimpleQueue[_Call | None]") -> None:
    while call := calls.get():
        call()


def _settle(future: "Future[_T]", call: Callable[[], _T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001  # raised again by the thread that waits
        future.set_exception(error)
