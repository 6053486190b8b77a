"""Control planes as the previous release left them, which each test brings to this version."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.signer import opt_in
from tests.harness.tpm import TrustDomain
from tests.release.previous import Release, previous


@pytest.fixture(scope="session")
def release() -> Release:
    """Return the previous release."""
    return previous()


@pytest.fixture
def fleet(release: Release, tmp_path: Path) -> Iterator[Fleet]:
    """Run clusters with the CRDs and the permissions of the previous release."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    fleet = Fleet(
        tmp_path / "fleet", provide.kubernetes(version, ("kube-apiserver", "etcd", "kubectl"))
    )
    fleet.management.packaging = release.packaging
    for tenant in fleet.tenants:
        tenant.workload.packaging = release.packaging
    with fleet:
        for tenant in fleet.tenants:
            opt_in(fleet, tenant)
        yield fleet


@pytest.fixture
def machines(fleet: Fleet, tmp_path: Path) -> Iterator[Machines]:
    """Make machines, each with its own TPM. They are removed at the end of the test."""
    with ExitStack() as stack:
        yield Machines(fleet, TrustDomain(tmp_path / "vendor"), tmp_path / "machines", stack)
