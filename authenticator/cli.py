"""kubelet-authenticator-tpm: reads argv and environment, runs one command, and exits.

Without a subcommand, client-go runs it for a call that the launcher could not serve. It prints one
ExecCredential on stdout and nothing else; an error is one line on stderr, with its cause and the
next step. If the cache holds a certificate that can be served, the call does not wait: a background
run renews it when that is due.

Slow imports happen where they are needed (here and in `wiring`), so that a cached credential does
not depend on a TPM stack or an HTTP library.
"""

import contextlib
import gc
import importlib
import logging
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from authenticator import background, wiring
from authenticator.background import STDERR
from authenticator.clock import SystemClock
from authenticator.commands.run import (
    EXIT_RETRY,
    CommandContext,
    escape_unprintable,
    obtain_and_record,
    watchdog,
)
from authenticator.config.command_line import (
    BACKGROUND_COMMAND,
    DEFAULT_COMMAND,
    PROGRAM,
    Arguments,
    parse_arguments,
)
from authenticator.config.exec_info import EXEC_INFO_ENV, parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.settings import resolve, resolve_valid
from authenticator.enroll.enroll import Trigger
from authenticator.errors import (
    ConfigurationInvalid,
    DeadlinePassed,
    StateDirectoryUnsafe,
    StateDirectoryUnwritable,
)
from authenticator.late_imports import late_imports
from authenticator.model import EXCHANGE_TTL_SECONDS, Deadline
from authenticator.state.credential import (
    Credential,
    Freshness,
    encode_exec_credential,
    expiration_timestamp,
    freshness,
    overdue_seconds,
)
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import DONE, FAILED, STARTED, RunRecorder
from authenticator.state.store import FileStore
from common.errors import ApiServerUnavailable, AttestationError, Consequence

EXIT_FATAL: Final = 2

Command = Callable[[CommandContext], int]
_logger = logging.getLogger(__name__)


class _StderrHandler(logging.Handler):
    """Writes to stderr without its buffer, and drops what cannot be written.

    With lines left in the buffer of `sys.stderr` (full disk, closed pipe) Python exits with 120,
    and client-go discards the credential.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        with contextlib.suppress(OSError):
            line = escape_unprintable(self.format(record))
            os.write(STDERR, f"{line}\n".encode(errors="backslashreplace"))


def main() -> int:
    """Run with this process's arguments and environment; return the exit code."""
    # Imports create many objects, and each thousand of them would start a search for garbage: a
    # tenth of the CPU time of a cold join. The process ends within minutes.
    gc.disable()
    os.umask(0o077)
    os.environ.setdefault("TSS2_LOG", "all+none")  # the TPM libraries print to stderr by default
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no keys in core dumps
    time = "%(asctime)s " if sys.argv[1:2] == [BACKGROUND_COMMAND] else ""
    logging.basicConfig(
        format=f"{time}{PROGRAM}: %(message)s", level=logging.WARNING, handlers=[_StderrHandler()]
    )
    try:
        return run(sys.argv[1:], os.environ)
    except AttestationError as error:
        hint = _proxy_hint(error, os.environ)
        _logger.error("%s: %s%s", error.reason, error.message, hint)  # noqa: TRY400 - one line
        return EXIT_FATAL if error.consequence is Consequence.FATAL else EXIT_RETRY
    except BrokenPipeError:
        return EXIT_RETRY  # the reader of stdout is gone
    except Exception:
        _logger.exception("this is a bug; please report it with this traceback")
        return EXIT_RETRY
    finally:
        # At its exit, the interpreter searches for garbage once more, but not in frozen objects.
        gc.freeze()


def _proxy_hint(error: AttestationError, environment: Mapping[str, str]) -> str:
    """Return why the API server may be unreachable for this program, and not for the kubelet."""
    names = [name for name in ("HTTPS_PROXY", "https_proxy") if environment.get(name)]
    if not isinstance(error, ApiServerUnavailable) or not names:
        return ""
    return f"; {names[0]} is not used: set proxy-url in the kubeconfig (join --proxy-url)"


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command; return its exit code. Raises leaves of the error tree."""
    raw = environment.get(EXEC_INFO_ENV)
    info = None if raw is None else os.fsencode(raw)
    if arguments[:1] == [BACKGROUND_COMMAND]:
        return _run_in_background(Trigger(arguments[1]), arguments[2:], info)
    parsed = _parse(arguments)
    if parsed.command == DEFAULT_COMMAND:
        try:
            call = _build_invocation(parsed, info, tuple(arguments))
        except ConfigurationInvalid as error:
            return _credential_despite(error, parsed, info, tuple(arguments))
        return _credential(call, environment)
    context = CommandContext(arguments=parsed, exec_info=info, program=sys.argv[0], out=sys.stdout)
    name = parsed.command.replace("-", "_")
    with late_imports():
        command: Command = importlib.import_module(f"authenticator.commands.{name}").run
    return command(context)


def _parse(arguments: Sequence[str]) -> Arguments:
    parsed = parse_arguments(arguments)
    if parsed.verbose:
        logging.getLogger("authenticator").setLevel(logging.DEBUG)
    return parsed


def _build_invocation(
    parsed: Arguments, info: bytes | None, arguments: tuple[str, ...]
) -> Invocation:
    if info is None and parsed.problems:
        raise ConfigurationInvalid("; ".join(parsed.problems))
    exec_info = parse_exec_info(info)
    hostname = os.uname().nodename
    settings = resolve(exec_info.settings, parsed.flags, hostname, parsed.problems)
    return Invocation(exec_info=exec_info, settings=settings, arguments=arguments)


def _build_valid_invocation(
    parsed: Arguments, info: bytes | None, arguments: tuple[str, ...]
) -> Invocation:
    """Return the call without the settings that are wrong."""
    exec_info = parse_exec_info(info)
    settings, _ = resolve_valid(exec_info.settings, parsed.flags, os.uname().nodename)
    return Invocation(exec_info=exec_info, settings=settings, arguments=arguments)


def _credential(call: Invocation, environment: Mapping[str, str]) -> int:
    """Print the cached credential and start a background run if one is due; or get one first."""
    clock = SystemClock()
    with StateDirectory(call.settings.state_dir) as directory:
        store = FileStore(directory, clock)
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
            trigger = Trigger.RENEWAL_DUE
        elif store.is_repeat_call(os.getppid(), int(now)):
            trigger = Trigger.UNAUTHORIZED_SUSPECTED
        else:
            return 0
        late = overdue_seconds(cached, now)
        _start_background_run(call, store, environment, trigger, late)
        return 0


def _credential_despite(
    error: ConfigurationInvalid, parsed: Arguments, info: bytes | None, arguments: tuple[str, ...]
) -> int:
    """Print the cached credential although settings are wrong. Raises the error without one.

    The certificate works. Without it, an error in a setting would end the kubelet's access at its
    next start.
    """
    if info is None:
        raise error
    call, clock = _build_valid_invocation(parsed, info, arguments), SystemClock()
    cached = call.matches(wiring.load_credential_from(call.settings.state_dir, clock))
    if cached is None or freshness(cached, clock.now()) is Freshness.EXPIRED:
        raise error
    _logger.error(
        "%s: %s; the cached certificate is served until it expires, and not renewed before the"
        " settings are corrected",
        error.reason,
        error.message,
    )
    _print(call, cached, clock.now())
    return 0


def _log_last_failure(store: FileStore, late: float) -> None:
    """Log what is known of a renewal that is overdue, for the log of the kubelet.

    No run holds the lock: so a last run that has only started was killed.
    """
    last = next(iter(store.run_records()[-1:]), None)
    if last is None:
        why = "no run is recorded" if late else ""
    elif last.get("result") == DONE:
        why = f"no run has started since that of {last.get('time')}" if late else ""
    elif last.get("result") == STARTED:
        why = f"the last run, of {last.get('time')}, was killed"
    else:
        why = f"the last renewal failed: {last.get('reason')}: {last.get('message')}"
    overdue = f"the renewal is overdue for {late / 3600:.1f} h; " if late else ""
    if why:
        _logger.warning("%s%s", overdue, why)


def _print(call: Invocation, credential: Credential, now: float) -> None:
    expires = expiration_timestamp(credential, now)
    output = encode_exec_credential(credential, call.exec_info.api_version, expires)
    while output:
        output = output[os.write(sys.stdout.fileno(), output) :]


def _start_background_run(
    call: Invocation,
    store: FileStore,
    environment: Mapping[str, str],
    trigger: Trigger,
    late: float,
) -> None:
    """Start a background run unless one holds the lock. Logs a failure to start it."""
    try:
        with store.lock(Deadline(SystemClock(), 0)):
            _log_last_failure(store, late)
            log = store.background_log()
        try:
            command = (sys.argv[0], BACKGROUND_COMMAND, trigger.value, *call.arguments)
            background.spawn(command, environment, log)
        finally:
            os.close(log)
    except DeadlinePassed:
        if late:
            _logger.warning("the renewal is overdue for %.1f h; a run is in progress", late / 3600)
    except (StateDirectoryUnsafe, StateDirectoryUnwritable, OSError) as error:
        _logger.warning("no background run can be started: %s", error)


def _run_in_background(trigger: Trigger, arguments: Sequence[str], raw: bytes | None) -> int:
    """Run what a call left to do, unless another run holds the lock."""
    parsed, clock = _parse(arguments), SystemClock()
    try:
        call = _build_invocation(parsed, raw, tuple(arguments))
    except ConfigurationInvalid as error:
        # The launcher serves the cache, and reads no settings: only the record shows it the error.
        state_dir = _build_valid_invocation(parsed, raw, tuple(arguments)).settings.state_dir
        with StateDirectory(state_dir) as directory:
            record = RunRecorder(clock, trigger.value).record(FAILED, error)
            FileStore(directory, clock).append_run_record(record)
        raise
    deadline = Deadline(clock, EXCHANGE_TTL_SECONDS)
    with StateDirectory(call.settings.state_dir) as directory, watchdog(deadline):
        store = FileStore(directory, clock)
        with contextlib.suppress(DeadlinePassed), store.lock(Deadline(clock, 0)):
            obtain_and_record(call, store, deadline, trigger)
    return 0
