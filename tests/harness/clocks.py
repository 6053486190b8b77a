"""Programs whose clock is wrong, from outside: libfaketime stands before their C library.

Only the time of day is off. Clocks that count from boot, and the times of files, stay right, as on
a machine whose clock was set.
"""

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""Where Debian has it; the dynamic linker puts in the name of the architecture's folder."""

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 # the kernel's
_LEFT_BEHIND = ("faketime_shm_", "sem.faketime_sem_")
_CHILDREN_ATTACH_SECONDS = 300
"""Children of a process that has ended look for its files, but not that late."""


def shifted(seconds: float) -> dict[str, str]:
    """Return the environment of a program, and of all that it starts, whose clock is so far off."""
    _remove_what_was_left_behind()
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME": f"{seconds:+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def until(timestamp: str) -> float:
    """Return the seconds from now to a time as Kubernetes writes it."""
    return (datetime.fromisoformat(timestamp) - datetime.now(UTC)).total_seconds()


def _remove_what_was_left_behind() -> None:
    """Remove the library's files whose process has long ended.

    It leaves them where a process is killed or replaces itself, and a later process that gets the
    same process ID could not start: "ft_shm_create(), shm_open failed: File exists".
    """
    oldest = time.time() - _CHILDREN_ATTACH_SECONDS
    for prefix in _LEFT_BEHIND:
        for path in _SHARED_MEMORY.glob(f"{prefix}*"):
            pid = path.name.removeprefix(prefix)
            with suppress(FileNotFoundError):  # another worker was sooner
                if not Path("/proc", pid).exists() and path.stat().st_mtime < oldest:
                    path.unlink()
