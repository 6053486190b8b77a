"""What an earlier run caught and this one does not: code may have changed or moved since."""

import pytest

from tests.mutation.results import Results, find_lost

COMPARISON = "a == b -> a != b"
BEFORE: Results = {"m:f:negate:1": {"change": COMPARISON, "caught_by": "test_f"}}


def survivor(name: str, change: str = COMPARISON) -> Results:
    return {name: {"change": change, "caught_by": ""}}


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (BEFORE, []),
        (survivor("m:f:negate:1"), ["m:f:negate:1"]),
        # Another condition comes first now.
        ({**survivor("m:f:negate:1", "c -> not c"), **survivor("m:f:negate:2")}, ["m:f:negate:2"]),
        # The function moved to another module.
        (survivor("n:f:negate:1"), ["n:f:negate:1"]),
        # The condition compares something else now.
        (survivor("m:f:negate:1", "a == c -> a != c"), ["m:f:negate:1"]),
        # The function no longer exists.
        (survivor("m:g:negate:1"), []),
    ],
)
def test_lost_mutants_are_found(after: Results, lost: list[str]) -> None:
    assert list(find_lost(BEFORE, after)) == lost


def test_mutant_that_survived_before_is_not_lost() -> None:
    before = survivor("m:f:negate:1")
    assert list(find_lost(before, before)) == []
