"""The variant with a CPython of its own, in Debian 11: glibc 2.31, and no Python."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.harness.debian_root import SUITES
from tests.harness.fleet import Fleet
from tests.harness.systemd_machine import TPM
from tests.harness.wire import output
from tests.packaging.node import joined_node, packages
from tests.packaging.node.packages import BUILD, DEB, DIRECTORY, Installer
from tests.systemd import units

APT: Final = ("apt-get", "--quiet", "--yes")
INTERPRETER: Final = f"{DIRECTORY}/python/bin/python3"


TREE: Final = packages.PROJECT / "build/bundled"
"""The root directory with the files that `make bundled` has packed."""
OLD_SUITE: Final = "bullseye"
TCTI: Final = "swtpm:host=127.0.0.1,port=2321"
"""The TPM library of Debian 11 knows no Unix sockets, which the software TPM of the tests has."""
SOCKETS: Final = {2321: f"{TPM}/sock", 2322: f"{TPM}/sock.ctrl"}
"""What socat connects to the port of that TCTI, and to the next one."""


@pytest.fixture(scope="module")
def package() -> Path:
    """Return the deb of the variant."""
    [deb] = (packages.PROJECT / "dist").glob(f"{packages.NAME}_*+bundled_*.deb")
    return deb


@pytest.fixture(scope="module")
def system(package: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return a system with the variant and without another Python, as layers of an overlay."""
    directory = tmp_path_factory.mktemp("system")
    return packages.install(OLD_SUITE, DEB, directory, more=("socat",), package=package)


def test_node_without_python_joins_renews_and_serves_from_its_cache(
    system: tuple[Path, ...], fleet: Fleet, tmp_path: Path
) -> None:
    with joined_node.prepared(system, fleet, "bundled", tmp_path, TCTI) as node:
        machine = node.machine
        assert machine.call("test", "-e", "/usr/bin/python3").returncode == 1
        for port, path in SOCKETS.items():
            listen, connect = f"TCP-LISTEN:{port},fork,reuseaddr", f"UNIX-CONNECT:{path}"
            machine.run("systemd-run", f"--unit=port-{port}", "socat", listen, connect)
        node.start_kubelet()
        joined = machine.run("cat", joined_node.CREDENTIAL)
        machine.run(units.PROGRAM, "renew")
        assert machine.run("cat", joined_node.CREDENTIAL) != joined
        node.disable_full_program()
        served = node.cached_call()
        assert served.returncode == 0, served.stderr
        assert json.loads(served.stdout)["status"]["clientCertificateData"]
        assert machine.state() == "running"


def test_change_to_the_variant_and_back_keeps_the_keys(
    package: Path, installed: Installer, fleet: Fleet, tmp_path: Path
) -> None:
    """Two names of packages would leave one to purge, with the keys of the node."""
    normal = packages.find(packages.PROJECT / "dist", DEB)
    with joined_node.prepared(installed(SUITES[0], DEB), fleet, "variant", tmp_path) as node:
        node.start_kubelet()
        machine = node.machine
        credential = machine.run("cat", joined_node.CREDENTIAL)
        for deb in (package, normal):
            machine.run(*APT, "install", "--allow-downgrades", node.copy_into(deb))
            machine.run(*APT, "purge", "~c")
            assert machine.run("cat", joined_node.CREDENTIAL) == credential
            has_own_python = machine.call("test", "-e", INTERPRETER).returncode == 0
            assert has_own_python == (deb is package)
            assert node.cached_call().returncode == 0


def test_python_of_another_version_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    refused = subprocess.run(
        [BUILD / "bundle-python.sh", tmp_path / "tree", tmp_path],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "must have a CPython 3.11 to 3.14" in refused.stderr


def test_system_extension_gives_a_read_only_system_the_program(tmp_path: Path) -> None:
    """systemd-sysext merges the extension into /usr, in a mount namespace of its own."""
    extension = tmp_path / packages.NAME
    output(BUILD / "sysext.sh", TREE, extension)
    program = f"{DIRECTORY}/bin/kubelet-authenticator-tpm-full"
    with packages.without_package(SUITES[0], tmp_path) as system:
        shutil.copytree(extension, system / "var/lib/extensions" / packages.NAME, symlinks=True)
        # As in a booted system: /run is a mount point, and the mounts of a child appear here.
        prepare = "mount --make-rshared /; mount -t tmpfs tmpfs /run"
        merge = f"{prepare}; systemd-sysext --root={system} merge"
        inside = f"{program} --version; kubelet-authenticator-tpm --help; ! touch /usr/written"
        script = f"{merge}; chroot {system} sh -ec '{inside}'"
        shown = output("unshare", "--mount", "sh", "-ec", script)
    assert shown.startswith("kubelet-authenticator-tpm ")
