"""The version in pyproject.toml, the only place that states it."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
CHART: Final = PROJECT / "packaging/signer/chart"
_VERSION: Final = re.compile(r"(\d+\.\d+\.\d+)(?:\.?([a-z]+)(\d+))?")


def project_version() -> str:
    """Return the version of the project, as Python writes it."""
    table = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(table["project"]["version"])


def semantic_version() -> str:
    """Return the version of the project as MAJOR.MINOR.PATCH or MAJOR.MINOR.PATCH-KIND.NUMBER.

    Helm and clusterctl accept no other form: 0.1.0.dev0 is 0.1.0-dev.0.
    Raises `ValueError`: the version has another form.
    """
    version = project_version()
    if (match := _VERSION.fullmatch(version)) is None:
        raise ValueError(
            f"version {version} must be MAJOR.MINOR.PATCH, also with devN, aN, bN, rcN"
        )
    base, kind, number = match.groups()
    return f"{base}-{kind}.{number}" if kind else str(base)


if __name__ == "__main__":
    sys.stdout.write(f"{semantic_version()}\n")
