"""An API server without any objects of this project, and the fixtures of the integration tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.controlplane import ApiServer
from tests.integration.conftest import assets, fleet, machines, vendor

__all__ = ["assets", "empty_cluster", "fleet", "machines", "vendor"]


@pytest.fixture(scope="session")
def empty_cluster(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Run an API server into which tests install the signer."""
    directory = tmp_path_factory.mktemp("clusters") / "empty"
    with ApiServer("empty", directory, assets) as running:
        yield running
