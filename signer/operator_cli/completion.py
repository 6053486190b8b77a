"""Shell completion: argcomplete for `node-attestation`, and kubectl's protocol for its plugin.

kubectl runs `kubectl_complete-attestation` with the words so far, the last one incomplete, and
reads one completion per line and a directive at the end (KEP-2379 and cobra's `__complete`).
"""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from io import StringIO
from typing import Any, Final

from signer.operator_cli.command_parser import PROGRAM, build_parser

KUBECTL_COMPLETE: Final = "kubectl_complete-attestation"
"""The name by which kubectl runs the program for completions."""
_NO_FILES: Final = ":4"
"""cobra's ShellCompDirectiveNoFileComp."""
_FILES: Final = ":0"
"""cobra's ShellCompDirectiveDefault: the shell completes names of files."""
_OBJECTS: Final[Mapping[tuple[str, object], str]] = {
    ("cluster", None): "clusters",
    ("machine", None): "machines",
    ("target", None): "waiting_machines",
    ("key", None): "keys",
    ("targets", "+"): "nodes",
    ("policy", None): "policies",
}
"""The functions of `object_names` that complete an argument, by its name and number of values. The
optional keys of `approve` and `register` are left out: they come from machines."""


def complete(program: str) -> None:
    """Print completions and exit if the shell asks for them; do nothing otherwise."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete  # noqa: PLC0415 - only a shell with completion needs it

        argcomplete.autocomplete(_with_completers(build_parser(program)))


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
            _with_completers(build_parser(PROGRAM)),
            exit_method=sys.exit,
            output_stream=output,
            always_complete_options="long",
            # The shell completes names of files better: it does not end the word after a directory.
            default_completer=SuppressCompleter(),
        )
    except SystemExit:
        pass  # argcomplete has written its output
    finally:
        os.environ.clear()
        os.environ.update(before)
    return [word.rstrip() for word in output.getvalue().splitlines() if word.strip()]


def _with_completers(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the completers of names of objects to a parser and to those of its commands."""
    for argument in parser._actions:  # noqa: SLF001 - argcomplete reads it, too
        if isinstance(argument, argparse._SubParsersAction):  # noqa: SLF001
            for command in argument.choices.values():
                _with_completers(command)
        names = _OBJECTS.get((argument.dest, argument.nargs))
        if names:
            argument.completer = partial(_complete_objects, names)  # type: ignore[attr-defined]
    return parser


def _complete_objects(names: str, *, parsed_args: argparse.Namespace, **_: Any) -> Sequence[str]:  # noqa: ANN401
    # It imports the official client, which would make all completions slow.
    from signer.operator_cli import object_names  # noqa: PLC0415

    return object_names.read_names(parsed_args, getattr(object_names, names))
