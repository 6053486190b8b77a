"""What every subcommand gets, and how one run is bounded and recorded."""

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

from authenticator import wiring
from authenticator.background import STDERR
from authenticator.clock import SystemClock
from authenticator.config.command_line import PROGRAM, Arguments
from authenticator.config.invocation import Invocation
from authenticator.config.settings import Settings
from authenticator.enroll.enroll import Trigger, obtain_credential
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.errors import ConfigurationInvalid, CoolingDown
from authenticator.model import Deadline
from authenticator.state.credential import Credential, rfc3339
from authenticator.state.run_record import DONE, FAILED, RunRecorder
from authenticator.state.store import FileStore
from common.errors import AttestationError

EXIT_RETRY: Final = 1
RESOLVE_SECONDS: Final = 30
"""For reading the files that say what a command has to do."""

WATCHDOG_SECONDS: Final = 5
"""How long after its deadline the watchdog ends a process."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The input and output of one subcommand."""

    arguments: Arguments
    exec_info: bytes | None
    """KUBERNETES_EXEC_INFO, if it is set."""
    program: str
    """argv[0]"""
    out: TextIO

    def require_valid_arguments(self) -> None:
        """Raise ConfigurationInvalid if an argument was not understood."""
        if self.arguments.problems:
            raise ConfigurationInvalid("; ".join(self.arguments.problems))

    def print_document(self, document: Mapping[str, object], text: str) -> None:
        """Print the document as JSON if --output asks for that, else the text."""
        if self.arguments.json:
            self.out.write(json.dumps(document, indent=2) + "\n")
        else:
            self.out.write(escape_unprintable(text))

    def print_certificate(self, credential: Credential) -> None:
        """Print the node name and when its certificate expires."""
        until = rfc3339(credential.not_after)
        self.out.write(f"{credential.node_name}: certificate until {until}\n")


def escape_unprintable(text: str) -> str:
    r"""Return text that cannot control a terminal: all but printable characters and \n escaped.

    Messages may hold what an API server or a signer wrote.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def obtain_and_record(
    call: Invocation, store: FileStore, deadline: Deadline, trigger: Trigger
) -> Credential:
    """Obtain a credential. The caller holds the lock of the store."""
    return run_recorded(
        call.settings,
        store,
        trigger.value,
        lambda deps: obtain_credential(call, deps, deadline, trigger),
    )


def run_recorded(
    settings: Settings,
    store: FileStore,
    purpose: str,
    work: Callable[[EnrollDependencies], Credential],
) -> Credential:
    """Call `work` with the real dependencies, and append the records of the run to the store."""
    clock = SystemClock()
    recorder = RunRecorder(clock, purpose, lambda record: _append_record(store, record))
    try:
        credential = work(wiring.build_dependencies(settings, store, clock, recorder))
    except Exception as error:
        # The failure that started a cooldown was reported already.
        if recorder.has_begun or not isinstance(error, CoolingDown):
            _append_record(store, recorder.record(FAILED, error))
        raise
    _append_record(store, recorder.record(DONE))
    return credential


def _append_record(store: FileStore, record: Mapping[str, object]) -> None:
    try:
        store.append_run_record(record)
    except (AttestationError, OSError) as error:
        _logger.warning("the record of this run cannot be written: %s", error)


@contextlib.contextmanager
def watchdog(deadline: Deadline) -> Iterator[None]:
    """End the process if it still runs WATCHDOG_SECONDS after the deadline.

    Name look-ups and drivers can hang where no timeout applies. Ending the process is safe at any
    moment, because each file of the state is replaced by one rename.
    """

    def end() -> None:
        try:
            os.write(STDERR, f"{PROGRAM}: DeadlinePassed: a call outside did not return\n".encode())
        finally:
            os._exit(EXIT_RETRY)

    timer = threading.Timer(max(0, deadline.remaining()) + WATCHDOG_SECONDS, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
