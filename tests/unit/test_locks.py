"""The lock files satisfy pyproject.toml and agree; each pin has a hash and no host."""

import re
import subprocess
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
BASE = PROJECT["project"]["dependencies"]
THIS = Path(__file__).relative_to(ROOT)

SEPARATE = ("docs", "packages")
"""Groups of tools that run outside the virtual environment of the tests."""
TESTED = [*BASE, *chain(*EXTRAS.values(), *(GROUPS[g] for g in GROUPS if g not in SEPARATE))]
ASKED = {
    "build": GROUPS["build"],
    "dev": TESTED,
    **{group: GROUPS[group] for group in SEPARATE},
    "node": [*BASE, *EXTRAS["node"]],
    "signer": [*BASE, *EXTRAS["signer"], *EXTRAS["gce"]],
    "operator": [*BASE, *EXTRAS["signer"], *EXTRAS["operator"]],
}


def pins(name: str) -> dict[str, str]:
    """Return the version of each package in a lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", text, re.MULTILINE))


def test_every_lock_has_a_description_of_what_it_must_hold() -> None:
    """A lock file without a description would never be compared."""
    assert {lock.stem for lock in LOCKS} == set(ASKED)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_lock_satisfies_pyproject(name: str) -> None:
    """Run `make lock` after a change of pyproject.toml."""
    locked = pins(name)
    for requirement in map(Requirement, ASKED[name]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("name", sorted(ASKED.keys() - SEPARATE))
def test_locks_agree_with_the_one_that_is_tested(name: str) -> None:
    """The shipped versions are the tested ones."""
    assert pins(name).items() <= pins("dev").items()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_has_a_hash_and_no_host(lock: Path) -> None:
    """The hash identifies a file; see docs/decisions/0001-locks-without-hosts.md."""
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert "--hash=sha256:" in entry


def test_pip_installs_only_what_a_lock_names() -> None:
    """Each use of a lock has `--no-deps`, because a lock is complete.

    Otherwise pip looks for the newest version of each requirement with an extra, as in
    `coverage[toml]`. It fails on the day when that version is not the locked one.
    """
    command = ["git", "grep", "-h", "-e", "--require-hashes", "--", ":!requirements", f":!{THIS}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = found.stdout.splitlines()
    assert [line for line in lines if "--no-deps" not in line] == []
