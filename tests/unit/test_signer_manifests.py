"""The rendered manifests have the CRDs and permissions of today.

tests/packaging/signer compares every byte, with Helm. This comparison needs no Helm.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

PACKAGING = Path(__file__).parents[2] / "packaging/signer"
RENDERED = ("install.yaml", "addon-components.yaml")


def objects(path: Path, kind: str) -> dict[str, Any]:
    """Return the objects of a kind in a file by their names."""
    documents = yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {each["metadata"]["name"]: each for each in documents if each and each["kind"] == kind}


@pytest.mark.parametrize("name", RENDERED)
def test_manifests_have_the_present_crds(name: str) -> None:
    """Run `make manifests` after a change."""
    kind = "CustomResourceDefinition"
    rendered = objects(PACKAGING / "manifests" / name, kind)
    specs = {crd: each["spec"] for crd, each in rendered.items()}
    files = sorted((PACKAGING / "crds").glob("*.yaml"))
    assert specs == {
        crd: each["spec"] for file in files for crd, each in objects(file, kind).items()
    }


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_manifests_have_the_present_permissions(kind: str) -> None:
    """Run `make manifests` after a change."""
    rendered = objects(PACKAGING / "manifests/install.yaml", kind)
    source = objects(PACKAGING / "management-rbac.yaml", kind)
    assert {name: role["rules"] for name, role in rendered.items()} == {
        name: role["rules"] for name, role in source.items()
    }
