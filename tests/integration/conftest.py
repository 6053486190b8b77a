"""Control planes for a whole test run; what is missing fails, and nothing is skipped."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the folder with all programs of the Kubernetes version under test."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    return provide.kubernetes(version, provide.ALL)


@pytest.fixture(scope="session")
def fleet(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Run a management cluster and two workload clusters; tests use Machine names of their own."""
    with Fleet(tmp_path_factory.mktemp("fleet"), assets) as running:
        yield running
