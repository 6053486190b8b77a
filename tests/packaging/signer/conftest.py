"""An API server without any objects of this project, and the fixtures of the integration tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.harness.controlplane import ApiServer
from tests.integration.conftest import assets, fleet, machines, vendor
from tests.packaging.signer.helm import template

__all__ = ["assets", "empty_cluster", "fleet", "machines", "vendor"]


@pytest.fixture(scope="session")
def empty_cluster(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Run an API server into which tests install the signer."""
    directory = tmp_path_factory.mktemp("clusters") / "empty"
    with ApiServer("empty", directory, assets) as running:
        yield running


@pytest.fixture(scope="session")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the rules of the rendered PrometheusRule to a file of Prometheus."""
    file = tmp_path_factory.mktemp("rules") / "rules.yaml"
    text = template("helm4", "--set", "prometheusRule.enabled=true")
    [rule] = (doc for doc in yaml.safe_load_all(text) if doc and doc["kind"] == "PrometheusRule")
    file.write_text(yaml.safe_dump(rule["spec"]), encoding="utf-8")
    return file
