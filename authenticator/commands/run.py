"""One run that may get a certificate: recorded, and ended from outside when it hangs."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from authenticator import wiring
from authenticator.background import STDERR
from authenticator.clock import SystemClock
from authenticator.config.arguments import PROGRAM
from authenticator.config.invocation import Invocation
from authenticator.config.settings import Settings
from authenticator.enroll.enroll import EnrollDependencies, Trigger, obtain_credential
from authenticator.errors import CoolingDown, StateDirectoryUnwritable
from authenticator.model import Deadline
from authenticator.state.credential import Credential
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import FileStore

EXIT_RETRY: Final = 1
WATCHDOG_SECONDS: Final = 5
"""How long after its deadline a run that hangs in somebody else's code is ended from outside."""

_TOLD: Final = "something did not come back in time"
_logger = logging.getLogger(__name__)


def obtain_and_record(
    call: Invocation, store: FileStore, deadline: Deadline, occasion: Trigger
) -> Credential:
    """Obtain a credential under the lock that the caller holds."""
    return run_recorded(
        call.settings,
        store,
        occasion.value,
        lambda world: obtain_credential(call, world, deadline, occasion),
    )


def run_recorded(
    settings: Settings,
    store: FileStore,
    purpose: str,
    work: Callable[[EnrollDependencies], Credential],
) -> Credential:
    """Do the work of a run in the real world, and keep a record of it."""
    clock = SystemClock()
    report = RunRecorder(clock, purpose)
    try:
        credential = work(wiring.build_dependencies(settings, store, clock, report))
    except CoolingDown:
        raise  # the failure that began it is on record, and must not be pushed out by its echoes
    except Exception as error:
        _keep_record(store, report.record("failed", error))
        raise
    _keep_record(store, report.record("done"))
    return credential


def _keep_record(store: FileStore, record: Mapping[str, object]) -> None:
    try:
        store.append_run_record(record)
    except (StateDirectoryUnwritable, OSError) as error:
        _logger.warning("no record of this run kept: %s", error)


@contextlib.contextmanager
def watchdog(deadline: Deadline) -> Iterator[None]:
    """End the process when it hangs where no deadline reaches: name look-ups, drivers.

    What is on disk is whole at any moment, so nothing is lost.
    """

    def end() -> None:
        try:
            os.write(STDERR, f"{PROGRAM}: DeadlinePassed: {_TOLD}\n".encode())
        finally:
            os._exit(EXIT_RETRY)

    timer = threading.Timer(deadline.remaining() + WATCHDOG_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
