"""A machine for a kubelet: separate network, mount and PID namespaces, removed at the end.

A kubelet accepts no loopback address for its node, leaves mounts and daemons, and sets sysctls of
the whole kernel. The machine has an interface with its own address. All processes and mounts of the
machine end with its first process, even when the test run is killed.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.harness.process import start, wait_until, wait_until_ready
from tests.harness.wire import Bridge, Wire, output

PACKAGES: Final = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Programs that a machine needs, and their Debian packages."""

PRIVATE_DIRECTORIES: Final = ("/run", "/var/log")
"""Directories that programs write to without a setting; each machine mounts its own over them."""

SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Sysctls that a kubelet sets. A machine shows files with these values instead of the kernel's."""

# An ignored SIGCHLD survives exec, so the kernel reaps orphans of the machine.
_FIRST_PROCESS = ("sh", "-c", "trap '' CHLD; exec sleep infinity")
_SETTLED = "sleep"


class PartMissing(Exception):
    """A program is missing; the text names it and the package that has it."""


class LeftBehind(Exception):
    """A process or a mount still exists after its machine has ended."""


def require_parts() -> None:
    """Raise PartMissing with the names of all missing programs."""
    missing = [
        f"{program} (Debian package {package}; `make setup` installs it)"
        for program, package in PACKAGES.items()
        if shutil.which(program) is None
    ]
    if os.geteuid() != 0:
        missing.append("root: a kubelet runs as no other user")
    if missing:
        raise PartMissing(f"a real kubelet cannot run here without {'; '.join(missing)}")


class NetworkNamespace:
    """The machine. A context manager; `host_address` and `address` are the ends of its wire."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        self._wire = Wire(bridge)
        self.host_address = self._wire.host_address
        self.address = self._wire.address
        self.directory = Path()
        """A directory with a short name, for sockets; removed at the end."""
        self._stack = ExitStack()
        self._holder: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._namespace = 0

    def start(
        self, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in the machine, in a new process group."""
        return start([*self._enter(), *argv], log=log, env=env)

    def run(self, *argv: str | Path) -> str:
        """Run a program in the machine and return its output. Raise RuntimeError if it fails."""
        return output(*self._enter(), *argv)

    def path(self, name: str) -> Path:
        """Return the path under which this process finds a file of the machine."""
        return Path(f"/proc/{self._first}/root{name}")

    def enter_network(self) -> tuple[str, ...]:
        """Return the beginning of a command that uses only the network of the machine."""
        return ("nsenter", f"--net=/proc/{self._first}/ns/net", "--")

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """End a program and its process group, and wait until all of them have ended."""
        _signal_group(process, how)
        process.wait()
        # The process was nsenter, which ends on a signal without waiting for its program.
        wait_until(lambda: not _signal_group(process, 0), what=f"all of {process.args!r} has ended")

    def __enter__(self) -> Self:
        require_parts()
        try:
            self._make()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._wire.remove()
        remaining = [*_processes_in(self._namespace), *_mounts_under(self.directory)]
        if remaining:
            raise LeftBehind(f"still there: {'; '.join(remaining)}")

    def _make(self) -> None:
        directory = tempfile.TemporaryDirectory(prefix="node-")
        self.directory = Path(self._stack.enter_context(directory))
        log = self.directory / "holder.log"
        self._holder = start(
            [
                "unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
                "--", *_FIRST_PROCESS,
            ],
            log=log,
        )  # fmt: skip
        self._stack.callback(self._stop)
        what = "the namespaces exist"
        wait_until_ready(self._holder, self._has_first_process, what=what, log=log)
        self._namespace = Path(f"/proc/{self._first}/ns/net").stat().st_ino
        self._wire.connect(self._first)
        for hidden in PRIVATE_DIRECTORIES:
            self.run("mount", "-t", "tmpfs", "tmpfs", hidden)
        self._make_kubelet_directory()
        for name, value in SYSCTLS.items():
            file = self.directory / name.replace("/", ".")
            file.write_text(f"{value}\n", encoding="ascii")
            self.run("mount", "--bind", file, f"/proc/sys/{name}")

    def _stop(self) -> None:
        """Kill the first process, and so all others of the machine."""
        assert self._holder is not None
        _signal_group(self._holder, signal.SIGKILL)
        self._holder.wait()
        wait_until(
            lambda: not Path(f"/proc/{self._first}").exists(),
            what="all processes of the machine have ended",
        )

    def _has_first_process(self) -> bool:
        assert self._holder is not None
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        pids = children.read_text(encoding="ascii").split()
        if not pids:
            return False
        self._first = int(pids[0])
        # Once it runs this program, it has its own mount namespace.
        return Path(f"/proc/{self._first}/comm").read_text().strip() == _SETTLED

    @property
    def interface(self) -> str:
        """Name of the host's end of the wire."""
        return self._wire.interface

    def _make_kubelet_directory(self) -> None:
        """Create /var/lib/kubelet: a kubelet has a socket there, wherever its root directory is.

        The host may have no such directory to mount over. Links lead to everything else of the
        host's /var/lib, such as the programs under test, except to the state of a plugin there.
        """
        host_lib = self.directory / "lib"
        host_lib.mkdir()
        self.run("mount", "--rbind", "/var/lib", host_lib)
        self.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
        self.run("sh", "-c", 'ln -s "$0"/* /var/lib/', host_lib)
        self.run("rm", "-f", "/var/lib/kubelet", "/var/lib/kubelet-authenticator")
        self.run("mkdir", "/var/lib/kubelet")

    def _enter(self) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self._first), "--net", "--mount", "--pid", "--")


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a program's process group. Return False when no process is in it."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _processes_in(namespace: int) -> list[str]:
    """Return the processes in a network namespace."""
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/net").stat().st_ino == namespace:
                processes.append(f"process {entry.name} {(entry / 'comm').read_text().strip()}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return processes


def _mounts_under(directory: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(directory) in line]
