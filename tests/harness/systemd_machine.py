"""A machine whose first process is a real systemd: its own cgroup, namespaces and wire.

It boots in about a second over read-only layers and ends with the test run, however that ends. The
kernel is the one that all share, so /proc/sys and /sys are read-only in it, and it has no
capability to set the clock or to load modules.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from tests.harness.process import start, tail, wait_until, wait_until_ready
from tests.harness.wire import Wire, output

BOOT_SECONDS: Final = 60
TPM: Final = Path("/srv/tpm")
"""Path of the socket of its TPM in the machine. Services with PrivateTmp have another /tmp."""

_TAKEN_CAPABILITIES: Final = "-sys_module,-sys_rawio,-sys_time,-syslog,-sys_boot"
_PATH: Final = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
_BOOT: Final = """
set -e
work=$1 layers=$2 cgroup=$3; shift 3
echo $$ >"$cgroup/cgroup.procs"
exec unshare --pid --fork --kill-child --mount --propagation private --uts --ipc --net --cgroup \
  sh -ec '
    work=$1 layers=$2; shift 2
    mount -t tmpfs tmpfs "$work"
    mkdir "$work/upper" "$work/work" "$work/root"
    cd "$work"
    mount -t overlay -o "lowerdir=$layers,upperdir=upper,workdir=work" overlay root
    cd root
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,ro,bind proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs dev
    mknod -m 666 dev/null c 1 3
    mknod -m 666 dev/zero c 1 5
    mknod -m 666 dev/full c 1 7
    mknod -m 666 dev/random c 1 8
    mknod -m 666 dev/urandom c 1 9
    mknod -m 666 dev/tty c 5 0
    mkdir dev/pts dev/shm
    ln -s /proc/self/fd dev/fd
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    mount -t tmpfs tmpfs dev/shm
    mount -t tmpfs -o mode=755 tmpfs run
    for pair in "$@"; do
      mkdir -p ".${pair#*=}"
      mount --bind "${pair%%=*}" ".${pair#*=}"
    done
    echo 0123456789abcdef0123456789abcdef >etc/machine-id
    mkdir -p .old
    pivot_root . .old
    cd /
    umount -l /.old
    exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      setpriv --bounding-set "$CAPABILITIES" /lib/systemd/systemd --unit=multi-user.target
  ' sh "$work" "$layers" "$@"
"""


class SystemdMachine:
    """The machine. A context manager; `boot` starts it after its files have been written."""

    def __init__(self, layers: Sequence[Path], *, log: Path, tpm: Path | None = None) -> None:
        """Prepare it. `tpm` is the directory with the socket of its TPM."""
        self._layers = layers
        self._log = log
        self._binds = [f"{tpm}={TPM}"] if tpm else []
        self._wire = Wire()
        self._stack = ExitStack()
        self._first = 0
        self._files = Path()

    @property
    def first(self) -> int:
        """Process ID of its systemd on this machine; 0 before it boots."""
        return self._first

    @property
    def address(self) -> str:
        """Its address."""
        return self._wire.address

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Write a file: part of the system before it boots, or into the running one."""
        root = Path(f"/proc/{self._first}/root") if self._first else self._files
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)

    def boot(self) -> None:
        """Start systemd, and return when it has reached its default target."""
        cgroup = self._make_cgroup()
        work = self._directory / "work"
        work.mkdir()
        layers = ":".join(map(str, (self._files, *self._layers)))
        boot = _BOOT.replace("$CAPABILITIES", _TAKEN_CAPABILITIES)
        argv: list[str | Path] = ["sh", "-c", boot, "sh", work, layers, cgroup, *self._binds]
        process = start(argv, log=self._log)
        self._stack.callback(self._wire.remove)
        self._stack.callback(self._kill, process, cgroup)
        wait_until_ready(
            process, lambda: self._has_systemd(process), what="systemd starts", log=self._log
        )
        self._wire.connect(self._first)
        wait_until(
            lambda: self.state() in {"running", "degraded"},
            what=f"systemd is up\n{tail(self._log)}",
            seconds=BOOT_SECONDS,
        )

    def state(self) -> str:
        """Return systemd's own state, such as "running" or "degraded"."""
        return self.call("systemctl", "is-system-running").stdout.strip()

    def run(self, *argv: str) -> str:
        """Run a program as root. Raise RuntimeError with its output when it fails."""
        return output(*self._enter(), *argv)

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program as root, whatever its exit code is."""
        argv = (*self._enter(), *argv)
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run("systemctl", "show", "--property", name, "--value", unit).strip()

    def journal(self, unit: str) -> str:
        """Return the messages of a unit, and systemd's about it."""
        self.run("journalctl", "--sync")  # a program ends before the journal has its last line
        return self.run("journalctl", "--no-pager", "--output=cat", f"--unit={unit}")

    def __enter__(self) -> Self:
        self._directory = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="machine-"))
        )
        self._files = self._directory / "files"
        self._files.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _make_cgroup(self) -> Path:
        """Create a cgroup for the machine, which systemd takes over."""
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        unified = next(Path(fields[1]) for fields in mounts if fields[2] == "cgroup2")
        cgroup = unified / f"test-{self._wire.interface}"
        cgroup.mkdir()
        return cgroup

    def _has_systemd(self, process: subprocess.Popen[bytes]) -> bool:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if not children or Path(f"/proc/{children[0]}/comm").read_text().strip() != "systemd":
            return False
        self._first = int(children[0])
        return True

    def _kill(self, process: subprocess.Popen[bytes], cgroup: Path) -> None:
        (cgroup / "cgroup.kill").write_text("1", encoding="ascii")
        process.wait()
        wait_until(lambda: _remove(cgroup), what="all processes of the machine have ended")

    def _enter(self) -> tuple[str, ...]:
        target = ("nsenter", "--target", str(self._first), "--all", "--")
        return (*target, "env", "-i", "-C", "/", _PATH, "HOME=/root", "LANG=C.UTF-8")


def _remove(cgroup: Path) -> bool:
    """Remove a cgroup and those in it; False when a process has not ended yet."""
    with suppress(OSError):
        for path in sorted(cgroup.rglob("*/"), reverse=True):
            path.rmdir()
        cgroup.rmdir()
    return not cgroup.exists()
