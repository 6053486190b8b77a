"""The entry point of `kubectl-attestation`; only this module reads argv and environment."""

import importlib
import os
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.errors import AttestationError
from signer.operator_cli.command_parser import parse_arguments
from signer.operator_cli.completion import KUBECTL_COMPLETE, complete, complete_for_kubectl
from signer.operator_cli.errors import EXIT_MISUSED, EXIT_UNDECIDED, CommandError, ServerUnavailable
from signer.stacks import enlarge_stacks

if TYPE_CHECKING:
    from signer.operator_cli.session import Session

_INTERRUPTED: Final = 130
"""As shells report SIGINT."""
_STDERR: Final = 2
_WATCH_SECONDS: Final = 5.0
"""Seconds between two rounds of `--watch`."""
_ROOMS: Final = {
    "fleet": ("status", "clusters", "problems", "nodes", "pending"),
    "key_changes": ("approve", "register", "replace", "ban", "release"),
    "pcrs": ("pcrs",),
}
"""The commands of each room of `commands/`; the modules of the others are at its top."""


def main() -> int:
    """Run one command, or complete one for kubectl, and return the exit status."""
    enlarge_stacks()
    program = Path(sys.argv[0]).name
    if program == KUBECTL_COMPLETE:
        return complete_for_kubectl(sys.argv[1:])
    complete(program)
    arguments = parse_arguments(sys.argv[1:], program)
    _end_on_interrupt(lambda: f"{program}: interrupted; nothing was written\n")
    try:
        # The client is an extra: the node and the signer are installed without it.
        from signer.operator_cli.management import api  # noqa: PLC0415
        from signer.operator_cli.session import Session  # noqa: PLC0415

        command = find_command(arguments)
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"{program}: the module {error.name} is missing:"
            " install the project with the extras `signer` and `operator`\n"
        )
        return EXIT_MISUSED
    session = Session(
        arguments=arguments,
        connect=partial(
            api.connect,
            getattr(arguments, "kubeconfig", None),
            getattr(arguments, "context", None),
            getattr(arguments, "as_user", None),
        ),
        now=datetime.now(UTC),
        stdin=sys.stdin,
        stdout=sys.stdout,
        stderr=sys.stderr,
    )
    if getattr(arguments, "watch", False):
        _end_on_interrupt(str)
    else:
        _end_on_interrupt(lambda: f"{program}: interrupted; {session.interruption()}\n")
    try:
        return _run(command, session, program)
    except CommandError as error:
        session.show_error(program, error)
        return error.status
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended.
        sys.stderr.close()
        return EXIT_UNDECIDED
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means no
        traceback.print_exc()
        return EXIT_UNDECIDED


def _end_on_interrupt(message: Callable[[], str]) -> None:
    """Let Ctrl-C print a message on stderr and end the process at once.

    An exception could be lost in a library, and an orderly end could wait: for a server that does
    not answer, or for a reader of the output.
    """

    def end(*_: object) -> None:
        os.write(_STDERR, message().encode())
        os._exit(_INTERRUPTED)

    # A shell lets its background jobs ignore the signal.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)


def find_command(arguments: Namespace) -> "Callable[[Session], int]":
    """Return `run` of the module that has the name of the command, and of its action if any."""
    words = (arguments.command, getattr(arguments, "action", ""))
    name = "_".join(filter(None, words)).replace("-", "_")
    rooms = [f"{room}." for room, commands in _ROOMS.items() if arguments.command in commands]
    module = f"signer.operator_cli.commands.{''.join(rooms)}{name}"
    command: Callable[[Session], int] = importlib.import_module(module).run
    return command


def _run(command: "Callable[[Session], int]", session: "Session", program: str) -> int:
    """Run the command, again and again with `--watch`; return the exit status.

    An error of a later round does not end the process. It is shown once, and its end too. Raises
    `CommandError`.
    """
    status, shown = _run_once(command, session), ""
    while getattr(session.arguments, "watch", False):
        time.sleep(_WATCH_SECONDS)
        session.now, session.is_first_round = datetime.now(UTC), False
        try:
            _run_once(command, session)
        except CommandError as error:
            if error.message != shown:
                session.show_error(program, error)
            shown = error.message
        else:
            if shown:
                session.stderr.write("the management cluster can be read again\n")
                session.stderr.flush()
            shown = ""
    return status


def _run_once(command: "Callable[[Session], int]", session: "Session") -> int:
    try:
        return command(session)
    except AttestationError as error:
        # A reader of the signer's could not read an answer of the management cluster.
        raise ServerUnavailable(f"{error.message} {error.detail}".strip()) from error
