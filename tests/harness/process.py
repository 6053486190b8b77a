"""Starts programs that end with the test run, and waits for events, never for a fixed time.

Each program gets a new session, and its output goes into a file.
"""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_SECONDS = 0.05
TAIL_BYTES = 4000

# The kernel kills a child with PR_SET_PDEATHSIG when the *thread* that started it ends, not only
# when the process does. This thread runs as long as the test run, so any thread may start programs.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
# setpriv sets it after the fork: a preexec_fn may deadlock in a program with threads.
_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")

# Below the kernel's range for outgoing connections, so that a port that a stopped program leaves
# is still free when it is started again.
_PORTS = range(20000, 32000)
# Not the shared generator, which pytest-randomly seeds equally for each test.
_random = random.Random()


class ProcessFailed(Exception):
    """A program ended early or did not become ready; the text has the end of its log."""


def start(  # noqa: PLR0913 - as `Popen`
    argv: Sequence[str | Path],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    stderr: int = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process, even when this process is killed.

    Its output goes into `log`; `stderr` may be another file descriptor.
    """
    with log.open("ab") as output:
        process = _spawner.submit(
            subprocess.Popen,
            [*_DIE_WITH_PARENT, *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=stderr,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        ).result()
    # Until setpriv has become the program, the program does not end with this process.
    wait_until(lambda: _is_executed(process), what=f"{argv[0]} is executed", poll=0.001)
    return process


def stop(process: subprocess.Popen[bytes], *, seconds: float = 10) -> None:
    """End a program with SIGTERM, then kill what remains of its process group."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill(process)


def require_running(process: subprocess.Popen[bytes], log: Path) -> None:
    """Raise `ProcessFailed` if a program has ended."""
    if process.poll() is not None:
        raise ProcessFailed(f"ended with {process.returncode}\n{tail(log)}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def running(
    argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program and stop it at the end."""
    process = start(argv, log=log, env=env)
    try:
        yield process
    finally:
        stop(process)


def wait_until_ready(
    process: subprocess.Popen[bytes],
    condition: Callable[[], bool],
    *,
    what: str,
    log: Path,
    seconds: float = 60,
) -> None:
    """Wait for a condition that a program brings about.

    Raises `ProcessFailed`: the program ended before, or time ran out.
    """

    def is_settled() -> bool:
        return process.poll() is not None or condition()

    try:
        wait_until(is_settled, what=what, seconds=seconds)
    except TimeoutError as error:
        raise ProcessFailed(f"{error}\n{tail(log)}") from error
    if process.returncode is not None:
        raise ProcessFailed(f"ended with {process.returncode} before {what}\n{tail(log)}")


def wait_until(
    condition: Callable[[], bool], *, what: str, seconds: float = 60, poll: float = POLL_SECONDS
) -> None:
    """Poll until a condition holds. Raises `TimeoutError`: it did not hold in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(poll)


def tail(log: Path) -> str:
    """Return the name of a log file and its end, for messages."""
    return f"{log}:\n{log.read_bytes()[-TAIL_BYTES:].decode(errors='replace')}"


def _is_executed(process: subprocess.Popen[bytes]) -> bool:
    try:
        executable = Path(f"/proc/{process.pid}/exe").readlink()
    except FileNotFoundError:  # it has ended already
        return True
    return executable.name != _DIE_WITH_PARENT[0]


def claim(name: str) -> bool:
    """Reserve a name until this process ends. Return False when another process has it.

    All test runs of this machine, and all workers of a run, share the names. They are abstract
    sockets, which the kernel closes when the process ends in any way.
    """
    claimed = socket.socket(socket.AF_UNIX)
    try:
        claimed.bind(f"\0node-attestation-tests/{name}")
    except OSError:
        claimed.close()
        return False
    claimed.detach()  # it stays open
    return True


def free_port() -> int:
    """Return a TCP port on loopback that is unused and was not returned before."""
    for port in _random.sample(_PORTS, len(_PORTS)):
        if not claim(f"port/{port}"):
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError(f"no port is free from {_PORTS.start} to {_PORTS.stop}")
