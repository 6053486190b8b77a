"""kubelet-authenticator-tpm: reads argv and environment, wires, prints, and ends.

Without a subcommand it is what client-go runs (a call that the launcher could not serve by itself):
one ExecCredential on stdout and nothing else, errors on stderr in one line with cause and next
step. With a certificate that can be served it never waits: what has to be done is done behind it.

Slow imports happen where they are needed (here and in `wiring`): a credential in the cache must not
depend on a TPM stack or an HTTP library.
"""

import contextlib
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from authenticator import background
from authenticator.background import STDERR
from authenticator.clock import SystemClock
from authenticator.commands.run import EXIT_RETRY, obtain_and_record, watchdog
from authenticator.config.arguments import BACKGROUND_COMMAND, PROGRAM, Arguments, parse_arguments
from authenticator.config.exec_info import EXEC_INFO_ENV, parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.settings import resolve
from authenticator.enroll.enroll import Trigger
from authenticator.errors import DeadlinePassed, StateDirectoryUnwritable
from authenticator.model import EXCHANGE_TTL_SECONDS, Deadline
from authenticator.state.credential import (
    Credential,
    Freshness,
    encode_exec_credential,
    expiration_timestamp,
    freshness,
)
from authenticator.state.directory import StateDirectory
from authenticator.state.store import FileStore
from common.errors import AttestationError, Consequence

EXIT_FATAL: Final = 2

_logger = logging.getLogger(__name__)


class _Lines(logging.Handler):
    """Writes to stderr what can be written: a log on a full disk costs no credential.

    Lines that Python's own stream could not get rid of would make its exit code 120, and client-go
    would throw away what was printed.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        with contextlib.suppress(OSError):
            os.write(STDERR, f"{self.format(record)}\n".encode(errors="backslashreplace"))


def main() -> int:
    """Run with this process's arguments and environment; return the exit code."""
    os.umask(0o077)
    os.environ.setdefault("TSS2_LOG", "all+none")  # the TPM libraries' own lines, unless wanted
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no keys in core dumps
    when = "%(asctime)s " if sys.argv[1:2] == [BACKGROUND_COMMAND] else ""
    logging.basicConfig(
        format=f"{when}{PROGRAM}: %(message)s", level=logging.WARNING, handlers=[_Lines()]
    )
    try:
        return run(sys.argv[1:], os.environ)
    except AttestationError as error:
        _logger.error("%s: %s", error.reason, error.message)  # noqa: TRY400 - one line, no more
        return EXIT_FATAL if error.consequence is Consequence.FATAL else EXIT_RETRY
    except BrokenPipeError:
        return EXIT_RETRY  # whoever asked is gone
    except Exception:
        _logger.exception("a bug; please report it with what follows")
        return EXIT_RETRY


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command. Raises leaves of common/errors."""
    raw = environment.get(EXEC_INFO_ENV)
    info = None if raw is None else os.fsencode(raw)
    if arguments[:1] == [BACKGROUND_COMMAND]:
        return _run_in_background(Trigger(arguments[1]), arguments[2:], info)
    parsed = parse_arguments(arguments)
    match parsed.command:
        case "credential":
            return _credential(_call(parsed, info, tuple(arguments)), environment)
        case "renew" | "join" | "serving":
            from authenticator.commands import certificates

            return certificates.run_command(parsed, info, sys.argv[0], sys.stdout)
        case _:
            from authenticator.commands import inspection

            return inspection.run_command(parsed, info, sys.stdout)


def _call(parsed: Arguments, raw: bytes | None, arguments: tuple[str, ...]) -> Invocation:
    exec_info = parse_exec_info(raw)
    hostname = os.uname().nodename
    settings = resolve(exec_info.settings, parsed.flags, hostname, parsed.problems)
    return Invocation(exec_info=exec_info, settings=settings, arguments=arguments)


def _credential(call: Invocation, environment: Mapping[str, str]) -> int:
    """Print what is in the cache and see to it behind, or get a credential first."""
    clock = SystemClock()
    with StateDirectory(call.settings.state_dir) as folder:
        store = FileStore(folder, clock)
        cached = call.matches(store.load_credential())
        now = clock.now()
        fresh = Freshness.EXPIRED if cached is None else freshness(cached, now)
        if cached is None or fresh is Freshness.EXPIRED:
            deadline = Deadline(clock, call.settings.timeout_seconds)
            with watchdog(deadline), store.lock(deadline):
                cached = obtain_and_record(call, store, deadline, Trigger.REQUIRED)
            now = clock.now()
            fresh = freshness(cached, now)
        _print(call, cached, now)
        if fresh is not Freshness.FRESH or not call.is_known_to(cached):
            _start_background_run(call, store, environment, Trigger.RENEWAL_DUE)
        elif store.is_repeat_call(os.getppid(), int(now)):
            _start_background_run(call, store, environment, Trigger.UNAUTHORIZED_SUSPECTED)
        return 0


def _log_last_failure(store: FileStore) -> None:
    """Say in the kubelet's log what a run that nobody waited for has met."""
    for last in store.run_records()[-1:]:
        if last.get("result") != "done":
            _logger.warning(
                "the last renewal failed: %s: %s", last.get("reason"), last.get("message")
            )


def _print(call: Invocation, credential: Credential, now: float) -> None:
    expires = expiration_timestamp(credential, now)
    printed = encode_exec_credential(credential, call.exec_info.api_version, expires)
    while printed:
        printed = printed[os.write(sys.stdout.fileno(), printed) :]


def _start_background_run(
    call: Invocation, store: FileStore, environment: Mapping[str, str], occasion: Trigger
) -> None:
    """Start a run behind this one unless there is one; a failure to do so costs nothing now."""
    _log_last_failure(store)
    try:
        with store.lock(Deadline(SystemClock(), 0)):
            log = store.background_log()
        try:
            background.spawn(
                (BACKGROUND_COMMAND, occasion.value, *call.arguments), environment, log
            )
        finally:
            os.close(log)
    except DeadlinePassed:
        return
    except (StateDirectoryUnwritable, OSError) as error:
        _logger.warning("renewal cannot be started behind this call: %s", error)


def _run_in_background(occasion: Trigger, arguments: Sequence[str], raw: bytes | None) -> int:
    """Do what a call left to be done, unless somebody is at it already."""
    call = _call(parse_arguments(arguments), raw, tuple(arguments))
    clock = SystemClock()
    deadline = Deadline(clock, EXCHANGE_TTL_SECONDS)
    with StateDirectory(call.settings.state_dir) as folder, watchdog(deadline):
        store = FileStore(folder, clock)
        with contextlib.suppress(DeadlinePassed), store.lock(Deadline(clock, 0)):
            obtain_and_record(call, store, deadline, occasion)
    return 0


if __name__ == "__main__":
    sys.exit(main())
