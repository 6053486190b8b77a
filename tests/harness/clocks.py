"""Programs whose clock is wrong, from outside: libfaketime stands before their C library.

Only the time of day is off. Clocks that count from boot, and the times of files, stay right, as on
a machine whose clock was set.
"""

from datetime import UTC, datetime

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""Where Debian has it; the dynamic linker puts in the name of the architecture's folder."""


def shifted(seconds: float) -> dict[str, str]:
    """Return the environment of a program, and of all that it starts, whose clock is so far off."""
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME": f"{seconds:+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def until(timestamp: str) -> float:
    """Return the seconds from now to a time as Kubernetes writes it."""
    return (datetime.fromisoformat(timestamp) - datetime.now(UTC)).total_seconds()
