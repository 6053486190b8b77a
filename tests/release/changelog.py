"""Reads CHANGELOG.md and compares it with a tag."""

import re
import tomllib
from pathlib import Path


class NotReleasable(Exception):
    """The tag, the version and the changelog do not agree."""


def project_version(root: Path) -> str:
    """Return the version in pyproject.toml, the only place that states it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def release_notes(tag: str, version: str, changelog: str) -> str:
    """Return the section of the changelog that belongs to a tag.

    Raises `NotReleasable`: the tag is not `v` and the version, the version has a suffix of a
    development version, or the changelog has no dated section for it.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReleasable(f"version {version} must be MAJOR.MINOR.PATCH: edit pyproject.toml")
    if tag != f"v{version}":
        raise NotReleasable(f"tag {tag} must be v{version}, as in pyproject.toml")
    heading = rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d$"
    section = re.search(rf"{heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise NotReleasable(f"CHANGELOG.md must have a section '## {version} - YYYY-MM-DD'")
    return section[1].strip() + "\n"
