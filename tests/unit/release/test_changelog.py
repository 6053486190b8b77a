"""A tag is released only when version and changelog agree with it."""

import pytest

from builders.changelog import NotReleasable, release_notes

CHANGELOG = """\
# Changelog

## Unreleased

## 1.2.3 - 2026-11-30

### Added

- The signer approves.

## 1.2.2 - 2026-11-01

- Older.
"""


def test_notes_are_the_section_of_the_version() -> None:
    notes = release_notes("v1.2.3", "1.2.3", CHANGELOG)
    assert notes == "### Added\n\n- The signer approves.\n"


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "problem"),
    [
        ("v1.2.4", "1.2.3", CHANGELOG, "tag v1.2.4 must be v1.2.3"),
        ("v1.2.3.dev0", "1.2.3.dev0", CHANGELOG, "must be MAJOR.MINOR.PATCH"),
        ("v1.2.3", "1.2.3", "## Unreleased\n\n- The signer approves.\n", "must have a section"),
        ("v1.2.3", "1.2.3", "## 1.2.3 - 2026-11-30\n\n## 1.2.2 - x\n", "must have a section"),
    ],
    ids=["other tag", "development version", "no section", "empty section"],
)
def test_disagreement_is_refused(tag: str, version: str, changelog: str, problem: str) -> None:
    with pytest.raises(NotReleasable, match=problem):
        release_notes(tag, version, changelog)
