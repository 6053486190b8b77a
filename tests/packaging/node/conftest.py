"""Systems with the installed package, and a control plane to join."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.netns import NetworkNamespace
from tests.harness.signer import serving_all
from tests.packaging.node import packages
from tests.packaging.node.packages import Installer, Kind


@pytest.fixture(scope="session")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with packages of a newer version."""
    directory = tmp_path_factory.mktemp("newer")
    packages.pack_newer(directory)
    return directory


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installer:
    """Return a function that returns a system with the package, as layers of an overlay."""

    @cache
    def install(suite: str, kind: Kind) -> tuple[Path, ...]:
        return packages.install(suite, kind, tmp_path_factory.mktemp(f"{suite}-{kind}"))

    return install


@pytest.fixture(scope="session", params=packages.SYSTEMS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def system(request: pytest.FixtureRequest, installed: Installer) -> tuple[Kind, tuple[Path, ...]]:
    """Return a format, and a system with the package of that format."""
    suite, kind = request.param
    return kind, installed(suite, kind)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Run the control planes under an address that machines reach, and a signer."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    kubernetes = provide.kubernetes(version, ("kube-apiserver", "etcd", "kubectl"))
    directory = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        anchor = stack.enter_context(NetworkNamespace())
        fleet = stack.enter_context(
            Fleet(directory / "fleet", kubernetes, host=anchor.host_address)
        )
        stack.enter_context(serving_all(fleet, directory / "signer"))
        yield fleet
