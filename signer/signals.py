"""The signals that end both signers."""

import faulthandler
import os
import signal
from pathlib import Path
from threading import Event


def stop_on_signals(seconds: float) -> Event:
    """Return an event that SIGTERM, SIGINT and SIGHUP set.

    After the first one the process ends within `seconds`, with status 1 if it has not ended by
    itself: a thread of `faulthandler` ends it, which needs neither Python nor a file that can be
    written. An alarm of the kernel would not end the first process of a container.
    """
    stop = Event()
    nowhere = os.open(Path(os.devnull), os.O_WRONLY)

    def handle(*_: object) -> None:
        if not stop.is_set():
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            stop.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handle)
    return stop
