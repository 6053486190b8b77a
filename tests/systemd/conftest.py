"""Machines with the shipped units, before they boot."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.harness.debian_root import SUITES, installed_program
from tests.harness.netns import NetworkNamespace
from tests.harness.systemd_machine import SystemdMachine
from tests.harness.tpm import SoftwareTpm, TrustDomain
from tests.systemd import units


@pytest.fixture(scope="session", params=SUITES)
def layers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, ...]]:
    """Return a Debian system with the program of this checkout, as layers of an overlay."""
    suite: str = request.param
    with installed_program(suite, tmp_path_factory.mktemp(suite)) as installed:
        yield installed


@pytest.fixture(scope="session")
def kubernetes() -> Path:
    """Return the directory with the programs of the Kubernetes version under test."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    return provide.kubernetes(version, ("kube-apiserver", "etcd", "kubectl"))


@pytest.fixture(scope="session")
def host() -> Iterator[str]:
    """Return an address of this machine that every machine reaches."""
    with NetworkNamespace() as anchor:
        yield anchor.host_address


@pytest.fixture
def machine(layers: tuple[Path, ...], tmp_path: Path) -> Iterator[SystemdMachine]:
    """Return a machine with the shipped units and a stand-in for the kubelet."""
    with SystemdMachine(layers, log=tmp_path / "systemd.log") as prepared:
        units.install(prepared)
        yield prepared


@pytest.fixture
def running(machine: SystemdMachine) -> SystemdMachine:
    """Return a machine that has joined and booted."""
    machine.write(units.KUBECONFIG, units.unreachable_kubeconfig())
    machine.boot()
    return machine


@pytest.fixture
def tpm(tmp_path: Path) -> Iterator[SoftwareTpm]:
    """Return a TPM for one machine."""
    with SoftwareTpm(TrustDomain(tmp_path / "vendor"), seed="systemd") as running:
        yield running


@pytest.fixture
def tpm_machine(
    layers: tuple[Path, ...], tmp_path: Path, tpm: SoftwareTpm
) -> Iterator[SystemdMachine]:
    """Return a machine with a TPM under `TPM`."""
    with SystemdMachine(layers, log=tmp_path / "systemd.log", tpm=tpm.directory) as prepared:
        units.install(prepared)
        yield prepared
