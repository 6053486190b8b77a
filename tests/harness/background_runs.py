"""Background runs of the plugin, found in the process list."""

from contextlib import suppress
from pathlib import Path

from authenticator.config.command_line import BACKGROUND_COMMAND
from tests.harness.node import Node
from tests.harness.process import wait_until


def running(node: Node) -> list[int]:
    """Return the process IDs of the background runs of a node."""
    return [pid for pid in map(int, _numbers()) if _belongs(pid, node)]


def wait_for_one(node: Node) -> int:
    """Wait until a node has one background run. Return its process ID."""
    found: list[int] = []

    def is_one() -> bool:
        found[:] = running(node)
        return len(found) == 1

    wait_until(is_one, what="one background run exists")
    return found[0]


def wait_for_end(node: Node, *, seconds: float = 60) -> None:
    """Wait until no background run of a node exists."""
    wait_until(lambda: not running(node), what="the background run has ended", seconds=seconds)


def _numbers() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _belongs(pid: int, node: Node) -> bool:
    process = Path("/proc", str(pid))
    with suppress(OSError):  # it has ended
        is_behind = BACKGROUND_COMMAND.encode() in _read(process, "cmdline").split(b"\0")
        return is_behind and str(node.state).encode() in _read(process, "environ")
    return False


def _read(process: Path, name: str) -> bytes:
    while not (content := (process / name).read_bytes()):
        # A process that becomes another program has neither arguments nor an environment for a
        # moment. A kernel thread and an ended process never have them: this raises for them.
        (process / "exe").readlink()
    return content
