"""Starts a detached run of this program, for which no call waits.

The run has its own session: a signal to its parent's process group does not reach it. It has its
own standard streams: with an inherited stdout client-go would wait for its end. It closes every
other inherited descriptor. It inherits the environment because that holds the exec info. When the
kubelet's service stops, systemd ends the run too; the next call starts another.
"""

import os
from collections.abc import Mapping
from pathlib import Path

STDIN, STDOUT, STDERR = range(3)


def spawn(command: tuple[str, ...], environment: Mapping[str, str], log: int) -> None:
    """Start a program by its path, with arguments, and the descriptor `log` as its stderr.

    Raises `OSError` when no process can be created.
    """
    inherited = (descriptor for descriptor in _open_descriptors() if descriptor > STDERR)
    file_actions = (
        (os.POSIX_SPAWN_OPEN, STDIN, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, STDOUT, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, STDERR),
        *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited),
    )
    os.posix_spawn(command[0], command, environment, file_actions=file_actions, setsid=True)


def _open_descriptors() -> list[int]:
    """Return all open descriptors, and the closed one that listed them: closing it is harmless."""
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]
