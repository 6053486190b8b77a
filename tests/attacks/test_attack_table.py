"""The suite itself: enough attacks, each by its own name, and none of the signer's reasons unused.

An error that no attack meets is a check that may be gone without anybody noticing.
"""

import importlib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from common import errors as common_errors
from common.errors import AttestationError
from signer import errors
from tests.attacks.runner import Attack

FOLDER = Path(__file__).parent
FAMILIES = [
    module
    for path in sorted(FOLDER.glob("test_*.py"))
    if path != Path(__file__)
    and hasattr(module := importlib.import_module(f"tests.attacks.{path.stem}"), "ATTACKS")
]
ATTACKS: list[Attack] = [attack for family in FAMILIES for attack in family.ATTACKS]
LEAVES = [
    leaf
    for leaf in {**vars(common_errors), **vars(errors)}.values()
    if isinstance(leaf, type) and issubclass(leaf, AttestationError) and leaf.check
]
ELSEWHERE = {
    errors.PolicyMissing: "needs no request at all: tests/unit/signer/controller/test_reconcile.py",
    errors.AuthorityUnavailable: "no attack: tests/unit/signer/issue/test_certificate.py",
}
"""Reasons that no request brings about, and where they are tested."""


def test_there_are_three_hundred_and_more() -> None:
    assert len(ATTACKS) >= 300


def test_each_has_a_name_of_its_own() -> None:
    names = Counter(str(attack) for attack in ATTACKS)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_each_reason_of_the_signer_is_met(leaf: type[AttestationError]) -> None:
    met = any(attack.reason is leaf for attack in ATTACKS)
    assert met != (leaf in ELSEWHERE)


def test_each_attack_names_the_check_of_its_reason() -> None:
    assert [str(a) for a in ATTACKS if a.reason.check != a.check] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_each_family_tells_its_story_and_passes_its_good_case(family: ModuleType) -> None:
    assert len((family.__doc__ or "").splitlines()) > 3
    assert any(name.startswith("test_the_good_case") for name in vars(family))
    assert "test_attack_is_refused" in vars(family)
