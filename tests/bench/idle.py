"""How long an idle signer is measured, and its figures in /proc."""

import os
from pathlib import Path
from typing import Final

SECONDS: Final = float(os.environ.get("IDLE_SECONDS", "120"))


SETTLE: Final = float(os.environ.get("IDLE_SETTLE", "75"))
"""Seconds after the last list in which the first maintenance of all clusters ends."""


def status(pid: int, field: str) -> int:
    """Return a number from /proc/PID/status."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    [line] = [line for line in lines if line.startswith(f"{field}:")]
    return int(line.split()[1])
