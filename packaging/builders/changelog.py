"""Prints the release notes of a tag: the section of CHANGELOG.md that belongs to it.

python -m builders.changelog v0.1.0
"""

import re
import sys

from builders.version import PROJECT, project_version


class NotReleasable(Exception):
    """The tag, the version and the changelog do not agree."""


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


def main() -> int:
    """Print the notes of the tag in the command line. Return the exit code."""
    [tag] = sys.argv[1:]
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    try:
        sys.stdout.write(release_notes(tag, project_version(), changelog))
    except NotReleasable as problem:
        sys.stderr.write(f"release: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
