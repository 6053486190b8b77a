"""The locks hold what pyproject.toml asks for, by hash, equal to each other, and name no host."""

import re
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

ASKED = {
    "build": GROUPS["build"],
    "dev": [*BASE, *chain(*EXTRAS.values(), *GROUPS.values())],
    "node": [*BASE, *EXTRAS["node"]],
    "signer": [*BASE, *EXTRAS["signer"]],
}


def pins(name: str) -> dict[str, str]:
    """Return the version of each package in a lock."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+)", text, re.MULTILINE))


def test_every_lock_has_a_description_of_what_it_must_hold() -> None:
    """A lock that nobody asks for is never compared."""
    assert {lock.stem for lock in LOCKS} == set(ASKED)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_lock_satisfies_pyproject(name: str) -> None:
    """After a change of pyproject.toml somebody has to run `make lock`."""
    locked = pins(name)
    for requirement in map(Requirement, ASKED[name]):
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("name", sorted(ASKED))
def test_locks_agree_with_the_one_that_is_tested(name: str) -> None:
    """What ships is what the tests ran with."""
    assert pins(name).items() <= pins("dev").items()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_has_a_hash_and_no_host(lock: Path) -> None:
    """A file is right by its hash; see docs/decisions/0001-locks-without-hosts.md."""
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    for entry in re.split(r"\n(?=[a-z0-9])", text)[1:]:
        assert "--hash=sha256:" in entry
