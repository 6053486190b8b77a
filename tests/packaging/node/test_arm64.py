"""The package for arm64, in a Debian for arm64 whose programs an emulator runs.

No systemd runs there, so a test calls the program as the kubelet does.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.systems import overlay
from tests.harness.fleet import Fleet
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.harness.wire import output
from tests.packaging.node import packages

PROGRAM: Final = "/usr/bin/kubelet-authenticator-tpm"
IN_SYSTEM: Final = """#!/bin/sh
exec unshare --mount sh -ec '
for directory in {shared} /dev /proc; do mount --bind "$directory" "{root}$directory"; done
exec chroot "{root}" {program} "$@"' sh "$@"
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Mount a system in which the package is installed."""
    directory = tmp_path_factory.mktemp("arm64")
    [deb] = (packages.PROJECT / "dist").glob(f"{packages.NAME}_*[0-9]_arm64.deb")
    layers = (packages.arm64_root(),)
    with overlay(directory / "mounts", directory / "upper", layers) as merged:
        shutil.copy(deb, merged / "srv")
        packages.apt_install(merged, f"/srv/{deb.name}", packages.TCTI)
        yield merged


def test_package_for_arm64_is_installed_and_starts(system: Path) -> None:
    assert output("chroot", system, "uname", "-m") == "aarch64\n"
    packages.import_everything(system)
    shown = output("chroot", system, packages.FULL_PROGRAM, "--version")
    assert shown.startswith("kubelet-authenticator-tpm ")


def test_node_for_arm64_joins_is_served_from_its_cache_and_renews(
    system: Path, fleet: Fleet, tmp_path: Path
) -> None:
    name = "arm64"
    with SoftwareTpm(TrustDomain(tmp_path / "vendor"), seed=name) as tpm:
        program = tmp_path / "program"
        node = Node(fleet.first, name, tpm, tmp_path / "node", program=program)
        shared = (node.directory, tpm.directory)
        for directory in shared:
            (system / str(directory).lstrip("/")).mkdir(parents=True)
        script = IN_SYSTEM.format(shared=" ".join(map(str, shared)), root=system, program=PROGRAM)
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
        fleet.add_machine(node.tenant, Machine(name, annotations=node.registration()))
        node.give_token(node.tenant.workload.bootstrap_token())
        joined = node.call().certificate
        assert node.call().certificate == joined
        renewed = node.call("renew")
        assert renewed.status == 0, renewed.complaint
        assert node.call().certificate != joined
