"""Runs programs of other architectures with the user mode emulator of Debian's qemu-user-static."""

from pathlib import Path
from typing import Final

from tests.harness.wire import output

_REGISTERED: Final = Path("/proc/sys/fs/binfmt_misc")
_FORMATS: Final = Path("/usr/lib/binfmt.d")
"""qemu-user-static describes there how the kernel recognizes programs. systemd gives that to the
kernel, and a system without systemd has no program that does."""


def enable(machine: str) -> None:
    """Let the kernel start programs of a machine (uname -m), in every root directory."""
    name = f"qemu-{machine}"
    if not (_REGISTERED / "register").exists():
        output("mount", "-t", "binfmt_misc", "binfmt_misc", _REGISTERED)
    if not (_REGISTERED / name).exists():
        text = (_FORMATS / f"{name}.conf").read_text(encoding="utf-8")
        [line] = [line for line in text.splitlines() if line.startswith(":")]
        (_REGISTERED / "register").write_text(line, encoding="utf-8")
