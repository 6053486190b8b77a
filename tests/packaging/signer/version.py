"""The version in pyproject.toml, in the form of Semantic Versioning."""

import tomllib
from pathlib import Path
from typing import Final

from packaging.version import Version

PROJECT: Final = Path(__file__).parents[3]


def semantic_version() -> str:
    """Return the version of the project as MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-KIND.NUMBER.

    Helm and clusterctl accept no other form: 0.1.0.dev0 is 0.1.0-dev.0.
    """
    table = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    version = Version(table["project"]["version"])
    base = ".".join(map(str, (version.major, version.minor, version.micro)))
    if version.dev is not None:
        return f"{base}-dev.{version.dev}"
    if version.pre is not None:
        return f"{base}-{version.pre[0]}.{version.pre[1]}"
    return base
