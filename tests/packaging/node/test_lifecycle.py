"""Install, run, upgrade and remove the package under a real systemd, with real API servers."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.systems import overlay
from tests.harness.debian_root import SUITES
from tests.harness.fleet import Fleet
from tests.harness.process import wait_until
from tests.harness.wire import output
from tests.packaging.node import joined_node, packages
from tests.packaging.node.joined_node import JoinedNode
from tests.packaging.node.packages import DEB, DIRECTORY, Installer, Kind
from tests.systemd import units

System = tuple[Kind, tuple[Path, ...]]
FORCE = "KUBELET_AUTHENTICATOR_REMOVE=1"
BYTECODE = f"find {DIRECTORY} -name '*.pyc'"

PRINT_VERSION = f"""
import sys
sys.path.insert(0, "{DIRECTORY}/lib")
import authenticator
print(authenticator.VERSION)
"""

PYTHON_VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"


@pytest.fixture
def node(
    request: pytest.FixtureRequest, system: System, fleet: Fleet, tmp_path: Path
) -> Iterator[JoinedNode]:
    """Return a node that has joined."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name)[-50:].strip("-")
    with joined_node.prepared(system[1], fleet, name, tmp_path) as prepared:
        prepared.start_kubelet()
        yield prepared


def test_installed_node_joins_renews_and_serves_from_its_cache(node: JoinedNode) -> None:
    machine = node.machine
    assert f"{DIRECTORY}/bin/" in machine.run("cat", units.KUBECONFIG)
    machine.run(units.PROGRAM, "renew")
    node.disable_full_program()
    served = node.cached_call()
    assert served.returncode == 0, served.stderr
    assert json.loads(served.stdout)["status"]["clientCertificateData"]
    assert machine.state() == "running"


def test_installed_program_starts_its_background_run(node: JoinedNode) -> None:
    """`python -m authenticator.cli` finds no modules: only the program's own script does."""
    served = node.suspicious_call()
    assert (served.returncode, served.stderr) == (0, "")
    runs = f"{units.STATE}/runs.jsonl"
    wait_until(
        lambda: '"unauthorized-suspected"' in node.machine.run("cat", runs),
        what="the background run writes its record",
    )


def test_upgrade_never_interrupts_the_cache(node: JoinedNode, system: System, newer: Path) -> None:
    machine, (kind, _) = node.machine, system
    package = node.copy_into(packages.find(newer, kind))
    before = (machine.run("cat", joined_node.CREDENTIAL), machine.show("kubelet", "MainPID"))
    with node.calling():
        machine.run(*kind.upgrade, package)
    after = (machine.run("cat", joined_node.CREDENTIAL), machine.show("kubelet", "MainPID"))
    assert after == before
    assert "join" in machine.run("cat", kind.defaults).lower(), "no package owns it"
    machine.run(units.PROGRAM, "renew")
    assert machine.run("python3", "-IS", "-c", PRINT_VERSION).strip() == packages.NEWER


def test_removal_leaves_nothing_but_the_state(node: JoinedNode, system: System) -> None:
    """It is refused while the kubelet runs the program, which would end the node."""
    machine, (kind, _) = node.machine, system
    timer = f"{units.SERVING}.timer"
    machine.run("systemctl", "start", timer)
    refused = machine.call(*kind.remove, packages.NAME)
    assert refused.returncode != 0
    assert 'run "kubelet-authenticator-tpm leave" first' in refused.stdout + refused.stderr
    assert node.cached_call().returncode == 0
    removed = machine.call("env", FORCE, *kind.remove, packages.NAME)
    assert removed.returncode == 0, removed.stderr
    left = machine.call("ls", "-d", units.PROGRAM, DIRECTORY, f"{units.UNITS}/{timer}")
    assert left.stdout == ""
    assert machine.call("systemctl", "is-active", timer).stdout == "inactive\n"
    assert machine.state() == "running"
    assert machine.call("test", "-e", joined_node.CREDENTIAL).returncode == 0


def test_purge_removes_keys(node: JoinedNode, system: System) -> None:
    machine, (kind, _) = node.machine, system
    if kind is DEB:
        machine.run("env", FORCE, "dpkg", "--purge", packages.NAME)
        assert machine.call("ls", "-d", units.STATE).stdout == ""
    else:  # rpm has no purge: docs/node.md names the directory
        machine.run("env", FORCE, *kind.remove, packages.NAME)
        assert machine.call("test", "-e", units.STATE).returncode == 0


def test_package_is_removed_where_no_systemd_runs(installed: Installer, tmp_path: Path) -> None:
    """As in the build of an image."""
    layers = installed(SUITES[0], DEB)
    with overlay(tmp_path / "mounts", tmp_path / "upper", layers) as image:
        output("chroot", image, *DEB.remove, packages.NAME)
        assert not (image / DIRECTORY.lstrip("/")).exists()


def test_unsupported_python_leaves_the_cache_in_use(
    installed: Installer, fleet: Fleet, tmp_path: Path
) -> None:
    """As after an upgrade of the distribution to a Python that is newer than the package."""
    layers = installed(SUITES[0], DEB)
    with joined_node.prepared(layers, fleet, "unsupported-python", tmp_path) as node:
        node.start_kubelet()
        machine = node.machine
        version = machine.run("python3", "-c", PYTHON_VERSION).strip()
        removal = f"rm {DIRECTORY}/lib/_cffi_backend.cpython-{version.replace('.', '')}-*.so"
        machine.run("sh", "-c", removal)
        for call in (node.cached_call(), node.suspicious_call()):
            assert call.returncode == 0, call.stderr
            assert json.loads(call.stdout)["status"]["clientCertificateData"]
        renewal = machine.call(units.PROGRAM, "renew")
        assert renewal.returncode == 2
        assert f"ProgramIncomplete: Python {version} cannot import a module" in renewal.stderr
        configured = machine.call(
            "dpkg", "--install", node.copy_into(packages.find(packages.PROJECT / "dist", DEB))
        )
        assert "gets no certificates" not in configured.stderr
        machine.run("sh", "-c", removal)
        script = f"/var/lib/dpkg/info/{packages.NAME}.postinst"
        assert "/usr/bin/python3 does not run, or" in machine.call(script, "configure").stderr


@pytest.fixture
def upgraded(installed: Installer, tmp_path: Path) -> tuple[Path, ...]:
    """Return a system whose distribution was upgraded under the files of the old installation."""
    old, new = (installed(suite, DEB) for suite in SUITES)
    upper = tmp_path / "upper"
    with overlay(tmp_path / "mounts", upper, new) as merged:
        program = merged / DIRECTORY.lstrip("/")
        shutil.rmtree(program)
        shutil.copytree(old[0] / DIRECTORY.lstrip("/"), program, symlinks=True)
    return upper, *new


def test_program_survives_a_feature_upgrade_of_python(
    upgraded: tuple[Path, ...], fleet: Fleet, tmp_path: Path
) -> None:
    """Without a new installation: neither bytecode nor paths are those of the new Python."""
    name = "feature-upgrade"
    with joined_node.prepared(upgraded, fleet, name, tmp_path) as node:
        machine = node.machine
        installed = machine.run("sh", "-c", BYTECODE)
        assert "cpython-" in installed
        tag = machine.run("python3", "-c", "import sys; print(sys.implementation.cache_tag)")
        assert tag.strip() not in installed
        node.start_kubelet()
        machine.run(units.PROGRAM, "renew")
        assert tag.strip() in machine.run("sh", "-c", BYTECODE), "Python has written its bytecode"
        node.disable_full_program()
        assert node.cached_call().returncode == 0
