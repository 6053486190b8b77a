"""Programs with a wrong clock: libfaketime is loaded before their C library.

Only the time of day is wrong. Clocks that count from boot, and the times of files, stay right, as
on a machine whose clock was set.
"""

import functools
import subprocess
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""Debian's path. The dynamic linker inserts the directory of the architecture."""

_REAL_SLEEP = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
}
"""
"""libfaketime shifts the end of each absolute sleep, also on the monotonic clock, which it leaves
right here. Then time.sleep() fails with EINVAL. This library is loaded before it."""

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 # the kernel's
_LEFT_BEHIND = ("faketime_shm_", "sem.faketime_sem_")
_CHILDREN_ATTACH_SECONDS = 300
"""Children of an ended process use its files for less time than this."""


def shifted(seconds: float) -> dict[str, str]:
    """Return an environment that shifts the clock of a program and of its children."""
    _remove_what_was_left_behind()
    return {
        "LD_PRELOAD": f"{_real_sleep()}:{LIBRARY}",
        "FAKETIME": f"{seconds:+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def until(timestamp: str) -> float:
    """Return the seconds from now to a time as Kubernetes writes it."""
    return (datetime.fromisoformat(timestamp) - datetime.now(UTC)).total_seconds()


@functools.cache
def _real_sleep() -> Path:
    """Compile the library that sleeps on the kernel's clock; return its path."""
    library = Path(tempfile.mkdtemp(prefix="real-sleep-"), "real_sleep.so")
    # cc is there: the TPM binding is compiled with it.
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
    subprocess.run(command, input=_REAL_SLEEP.encode(), check=True)
    return library


def _remove_what_was_left_behind() -> None:
    """Remove the library's files of processes that ended long ago.

    It leaves them where a process is killed or replaces itself, and a later process that gets the
    same process ID could not start: "ft_shm_create(), shm_open failed: File exists".
    """
    oldest = time.time() - _CHILDREN_ATTACH_SECONDS
    for prefix in _LEFT_BEHIND:
        for path in _SHARED_MEMORY.glob(f"{prefix}*"):
            pid = path.name.removeprefix(prefix)
            with suppress(FileNotFoundError):  # another worker removed it
                if not Path("/proc", pid).exists() and path.stat().st_mtime < oldest:
                    path.unlink()
