"""A machine of tests removes everything that it created, and names missing programs."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import netns
from tests.harness.netns import LeftBehind, NetworkNamespace, PartMissing
from tests.harness.process import wait_until

DAEMON = ("sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")


def namespaces() -> set[int]:
    """Return the network namespaces of all processes."""
    inodes = set()
    for entry in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            inodes.add(entry.stat().st_ino)
        except OSError:
            continue
    return inodes


def test_failure_leaves_no_daemon_no_mount_no_interface_and_no_file() -> None:
    created: list[NetworkNamespace] = []

    def fail() -> None:
        with NetworkNamespace() as machine:
            created.append(machine)
            (machine.directory / "mounted").mkdir()
            machine.run("mount", "-t", "tmpfs", "tmpfs", machine.directory / "mounted")
            machine.run("touch", "/var/lib/kubelet/made-by-a-test")
            machine.run(*DAEMON)
            assert machine._namespace in namespaces()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [machine] = created
    assert machine._namespace not in namespaces()
    assert not Path("/sys/class/net", machine.interface).exists()
    assert not machine.directory.exists()
    assert not Path("/var/lib/kubelet/made-by-a-test").exists()


def test_killed_test_run_leaves_no_daemon_and_no_interface() -> None:
    script = (
        "import signal, sys\n"
        "from tests.harness.netns import NetworkNamespace\n"
        "with NetworkNamespace() as machine:\n"
        "    machine.run(*sys.argv[1:])\n"
        "    print(machine._namespace, machine.interface, machine.directory, flush=True)\n"
        "    signal.pause()\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, *DAEMON], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    with runner.stdout:
        namespace, interface, directory = runner.stdout.readline().split()
    assert int(namespace) in namespaces()
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    wait_until(lambda: int(namespace) not in namespaces(), what="all processes have ended")
    wait_until(
        lambda: not Path("/sys/class/net", interface).exists(), what="the network is removed"
    )
    # Files remain, because no process was left to remove them.
    shutil.rmtree(directory)


def test_sysctls_of_a_kubelet_do_not_change_the_host() -> None:
    before = {name: Path("/proc/sys", name).read_text() for name in netns.SYSCTLS}
    with NetworkNamespace() as machine:
        for name, value in netns.SYSCTLS.items():
            assert machine.run("cat", f"/proc/sys/{name}").strip() == value
            machine.run("sh", "-c", f"echo 7 >/proc/sys/{name}")
    assert {name: Path("/proc/sys", name).read_text() for name in netns.SYSCTLS} == before


def test_remaining_mount_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netns, "_mounts_under", lambda directory: [f"tmpfs {directory}"])
    with pytest.raises(LeftBehind, match=r"still there: tmpfs /tmp/node-"), NetworkNamespace():
        pass


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PartMissing, match="nsenter") as raised, NetworkNamespace():
        pass
    for program, package in netns.PACKAGES.items():
        assert f"{program} (Debian package {package}; `make setup` installs it)" in str(
            raised.value
        )
