"""The entry point of `kubectl-attestation`; only this module reads argv and environment."""

import sys
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from signer.operator_cli.arguments import parse_arguments
from signer.operator_cli.completion import complete
from signer.operator_cli.errors import EXIT_MISUSED, EXIT_UNDECIDED, CommandError

_INTERRUPTED: Final = 130
"""As shells report SIGINT."""


def main() -> int:
    """Run one command and return the exit status."""
    program = Path(sys.argv[0]).name
    complete(program)
    arguments = parse_arguments(sys.argv[1:], program)
    try:
        # The client is an extra: the node and the signer are installed without it.
        from signer.operator_cli import dispatch, management  # noqa: PLC0415
        from signer.operator_cli.output import printable  # noqa: PLC0415
        from signer.operator_cli.session import Session  # noqa: PLC0415
    except ModuleNotFoundError as e:
        sys.stderr.write(
            f"{program}: the module {e.name} is missing:"
            " install the project with the extras `signer` and `operator`\n"
        )
        return EXIT_MISUSED
    session = Session(
        arguments=arguments,
        connect=partial(management.connect, arguments.kubeconfig, arguments.context),
        now=datetime.now(UTC),
        stdin=sys.stdin,
        stdout=sys.stdout,
        stderr=sys.stderr,
    )
    try:
        return dispatch.run(session)
    except CommandError as e:
        for line in e.message.splitlines():
            sys.stderr.write(f"{program}: {printable(line)}\n")
        if e.hint:
            sys.stderr.write(f"next step: {printable(e.hint)}\n")
        return e.status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended.
        sys.stderr.close()
        return EXIT_UNDECIDED
    except Exception:  # noqa: BLE001 - Python would exit with 1, which means no
        traceback.print_exc()
        return EXIT_UNDECIDED
