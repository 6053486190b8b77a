"""Starts a run of this program that nobody waits for.

It has its own session, so that a signal to its parent's group does not reach it, and its own
standard streams: with an inherited stdout, client-go would wait for its end. Nor does it keep open
what else its parent was given. It is this program's own interpreter in isolated mode; the
environment goes along, for the exec info in it.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

STDIN, STDOUT, STDERR = range(3)


def spawn(arguments: Sequence[str], environment: Mapping[str, str], log: int) -> None:
    """Start `kubelet-authenticator-tpm <arguments>`, its stderr going to the descriptor `log`.

    Raises OSError when no process can be made.
    """
    command = [sys.executable, "-I", "-m", "authenticator.cli", *arguments]
    others = (descriptor for descriptor in _open() if descriptor > STDERR)
    streams = (
        (os.POSIX_SPAWN_OPEN, STDIN, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, STDOUT, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, STDERR),
        *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in others),
    )
    os.posix_spawn(command[0], command, environment, file_actions=streams, setsid=True)


def _open() -> list[int]:
    """Return all open descriptors, and the one that looked for them, which may be closed again."""
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]
