"""Runs a program in another root directory, in namespaces of its own.

The root gets /proc and /dev only inside these namespaces. So they end with the program, also when
it is killed, and nothing that removes the root can reach the machine's devices.
"""

from pathlib import Path
from typing import Final

_ENTER: Final = """
mount -t proc proc "$0/proc"
mount --bind /dev "$0/dev"
exec chroot "$0" "$@"
"""
_ENVIRONMENT: Final = (
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
)  # fmt: skip


def command_in(root: Path, *argv: str, environment: tuple[str, ...] = ()) -> list[str | Path]:
    """Return the command that runs a program in a root directory."""
    return [
        "unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child",
        "sh", "-ec", _ENTER, root, "/usr/bin/env", "-i", *_ENVIRONMENT, *environment, *argv,
    ]  # fmt: skip
