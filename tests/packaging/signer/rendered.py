"""Renders the chart, and finds objects in what Helm writes."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.harness.client import Object
from tests.packaging.signer.helm import CHART, RELEASE, template


def render(
    values: Object, directory: Path, *, version: str = "helm4", chart: Path = CHART
) -> list[Object]:
    """Return the objects of a chart with some values."""
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return objects(template(version, "--values", file, chart=chart))


def objects(text: str) -> list[Object]:
    """Return the objects in rendered manifests."""
    return [document for document in yaml.safe_load_all(text) if document is not None]


def only(rendered: Sequence[Object], kind: str, name: str = RELEASE) -> Object:
    """Return the one object of a kind and name."""
    [found] = [o for o in rendered if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


def container(rendered: Sequence[Object], name: str = RELEASE) -> Object:
    """Return the container of a Deployment."""
    [manager] = only(rendered, "Deployment", name)["spec"]["template"]["spec"]["containers"]
    answer: Object = manager
    return answer
