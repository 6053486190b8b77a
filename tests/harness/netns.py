"""A machine within the machine: network, mounts and processes of its own, gone when it is left.

A kubelet takes no loopback address for its node, leaves mounts and daemons behind, and sets sysctls
of the whole kernel. In here it has an interface with an address of its own, and all that it starts
or mounts ends with the first process in here, whatever happens to the test run.
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
"""Programs that a node needs in here, and the Debian packages that bring them."""

PRIVATE_FOLDERS: Final = ("/run", "/var/log")
"""Where programs write whatever they are told; hidden under folders of its own."""

SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet writes into the kernel that all share; in here it finds it done."""

# An ignored SIGCHLD outlives exec: whatever is left to the first process in here is reaped.
_FIRST_PROCESS = ("sh", "-c", "trap '' CHLD; exec sleep infinity")
_SETTLED = "sleep"


class PartMissing(Exception):
    """This machine lacks something that the test needs; the text says what, and what brings it."""


class LeftBehind(Exception):
    """Something outlived the machine that it was part of."""


def require_parts() -> None:
    """Raise PartMissing with everything that is missing at once."""
    missing = [
        f"{program} (Debian package {package}; `make setup` brings it)"
        for program, package in PACKAGES.items()
        if shutil.which(program) is None
    ]
    if os.geteuid() != 0:
        missing.append("root: a kubelet runs as nobody else")
    if missing:
        raise PartMissing(f"a real kubelet cannot run here without {'; '.join(missing)}")


class NetworkNamespace:
    """The machine. A context manager; `host_address` and `address` are the two ends of its wire."""

    def __init__(self, bridge: Bridge | None = None) -> None:
        self._wire = Wire(bridge)
        self.host_address = self._wire.host_address
        self.address = self._wire.address
        self.folder = Path()
        """A folder with a short name, for sockets; gone at the end."""
        self._stack = ExitStack()
        self._holder: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._namespace = 0

    def start(
        self, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in here, in a process group of its own."""
        return start([*self._enter(), *argv], log=log, env=env)

    def run(self, *argv: str | Path) -> str:
        """Run a program in here to its end, and return what it printed."""
        return output(*self._enter(), *argv)

    def path(self, name: str) -> Path:
        """Return where this process finds a file that has this name in here."""
        return Path(f"/proc/{self._first}/root{name}")

    def end(self, process: subprocess.Popen[bytes], how: signal.Signals) -> None:
        """End a program and what it started, and wait until nothing of it is left."""
        _signal_group(process, how)
        process.wait()
        # This was nsenter, which does not wait for the program once it is told to end itself.
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
        wait_until(
            lambda: not self._wire.exists(),
            what="the network is taken down",
        )
        left = [*_processes_in(self._namespace), *_mounts_under(self.folder)]
        if left:
            raise LeftBehind(f"still there: {'; '.join(left)}")

    def _make(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="node-")
        self.folder = Path(self._stack.enter_context(folder))
        log = self.folder / "holder.log"
        self._holder = start(
            [
                "unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child",
                "--", *_FIRST_PROCESS,
            ],
            log=log,
        )  # fmt: skip
        self._stack.callback(self._stop)
        what = "namespaces can be made"
        wait_until_ready(self._holder, self._has_first_process, what=what, log=log)
        self._namespace = Path(f"/proc/{self._first}/ns/net").stat().st_ino
        self._wire.connect(self._first)
        for hidden in PRIVATE_FOLDERS:
            self.run("mount", "-t", "tmpfs", "tmpfs", hidden)
        self._make_kubelet_folder()
        for name, value in SYSCTLS.items():
            done = self.folder / name.replace("/", ".")
            done.write_text(f"{value}\n", encoding="ascii")
            self.run("mount", "--bind", done, f"/proc/sys/{name}")

    def _stop(self) -> None:
        """End the first process, and with it all others in here."""
        assert self._holder is not None
        _signal_group(self._holder, signal.SIGKILL)
        self._holder.wait()
        wait_until(lambda: not Path(f"/proc/{self._first}").exists(), what="all in here has ended")

    def _has_first_process(self) -> bool:
        assert self._holder is not None
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        found = children.read_text(encoding="ascii").split()
        if not found:
            return False
        self._first = int(found[0])
        # Not before it has got as far as this are its mounts its own.
        return Path(f"/proc/{self._first}/comm").read_text().strip() == _SETTLED

    @property
    def interface(self) -> str:
        """Name of the host's end of the wire."""
        return self._wire.interface

    def _make_kubelet_folder(self) -> None:
        """Have a /var/lib/kubelet in here: a kubelet has a socket there, wherever its root is.

        There may be none to mount on, and none is made on the machine that all share. What else
        is in /var/lib, the programs under test perhaps, is found through links; but not what this
        machine's own plugin keeps, if it has one.
        """
        rest = self.folder / "lib"
        rest.mkdir()
        self.run("mount", "--rbind", "/var/lib", rest)
        self.run("mount", "-t", "tmpfs", "tmpfs", "/var/lib")
        self.run("sh", "-c", 'ln -s "$0"/* /var/lib/', rest)
        self.run("rm", "-f", "/var/lib/kubelet", "/var/lib/kubelet-authenticator")
        self.run("mkdir", "/var/lib/kubelet")

    def _enter(self) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self._first), "--net", "--mount", "--pid", "--")


def _signal_group(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to a program's process group; False when nobody is left in it."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def _processes_in(namespace: int) -> list[str]:
    """Return those that are in a network namespace."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/net").stat().st_ino == namespace:
                found.append(f"process {entry.name} {(entry / 'comm').read_text().strip()}")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def _mounts_under(folder: Path) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if str(folder) in line]
