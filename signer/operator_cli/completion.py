"""Shell completion: argcomplete for `node-attestation`, and kubectl's protocol for its plugin.

kubectl runs `kubectl_complete-attestation` with the words so far, the last one incomplete, and
reads one completion per line and a directive at the end (KEP-2379 and cobra's `__complete`).
"""

import os
import shlex
import sys
from io import StringIO
from typing import Final

from signer.operator_cli.command_parser import build_parser

KUBECTL_COMPLETE: Final = "kubectl_complete-attestation"
"""The name by which kubectl runs the program for completions."""
_NO_FILES: Final = ":4"
"""cobra's ShellCompDirectiveNoFileComp."""
_FILES: Final = ":0"
"""cobra's ShellCompDirectiveDefault: the shell completes names of files."""


def complete(program: str) -> None:
    """Print completions and exit if the shell asks for them; do nothing otherwise."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415 - only a shell with completion needs it

        argcomplete.autocomplete(build_parser(program))


def complete_for_kubectl(words: list[str]) -> int:
    """Print the completions of the last word as kubectl reads them; return the exit status."""
    found = completions(words)
    sys.stdout.write(
        "".join(f"{word}\n" for word in found) + (_NO_FILES if found else _FILES) + "\n"
    )
    return 0


def completions(words: list[str]) -> list[str]:
    """Return the completions of the last word."""
    import argcomplete  # noqa: PLC0415 - as above
    from argcomplete.completers import SuppressCompleter  # noqa: PLC0415 - as above

    line = shlex.join(["kubectl-attestation", *words[:-1]]) + " " + (words[-1] if words else "")
    variables = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())),
        "COMP_TYPE": "9",
    }
    before = dict(os.environ)
    os.environ.update(variables)
    output = StringIO()
    try:
        argcomplete.autocomplete(
            build_parser(),
            exit_method=_stop,
            output_stream=output,
            always_complete_options="long",
            # The shell completes names of files better: it does not end the word after a directory.
            default_completer=SuppressCompleter(),
        )
    except _CompletedError:
        pass
    finally:
        os.environ.clear()
        os.environ.update(before)
    return [word.rstrip() for word in output.getvalue().splitlines() if word.strip()]


class _CompletedError(Exception):
    """argcomplete has written its output."""


def _stop(_status: int = 0) -> None:
    raise _CompletedError
