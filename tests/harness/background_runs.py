"""Runs of the plugin that it started behind a call, found as anybody finds processes."""

from contextlib import suppress
from pathlib import Path

from authenticator.config.arguments import BACKGROUND_COMMAND
from tests.harness.node import Node
from tests.harness.process import wait_until


def running(node: Node) -> list[int]:
    """Return the process IDs of those that run for a node."""
    return [pid for pid in map(int, _numbers()) if _belongs(pid, node)]


def wait_for_end(node: Node, *, seconds: float = 60) -> None:
    """Wait until none runs any more."""
    wait_until(lambda: not running(node), what="what runs behind the call ends", seconds=seconds)


def _numbers() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _belongs(pid: int, node: Node) -> bool:
    process = Path("/proc", str(pid))
    with suppress(OSError):  # it has ended
        is_behind = BACKGROUND_COMMAND.encode() in (process / "cmdline").read_bytes().split(b"\0")
        return is_behind and str(node.state).encode() in (process / "environ").read_bytes()
    return False
