"""What an edit of a policy changes, in words: an operator decides by them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from signer.policy.changes.edits import (
    EditInvalid,
    ReviewedPolicy,
    Value,
    describe_edit,
    set_end,
    with_values,
    without_values,
)

OLD, NEW = "aa" * 32, "bb" * 32
END = datetime(2026, 12, 31, tzinfo=UTC)


def policy() -> dict[str, Any]:
    """Return a policy with the old value of PCR 4, in its lists and in those of a variant."""
    selector = {"machineSelector": {"matchLabels": {"vendor": "one", "pool": "edge"}}}
    pcrs = {
        "mode": "Warn",
        "selection": {"sha256": [4]},
        "allowed": {"sha256": {"4": [OLD]}},
        "variants": [{**selector, "allowed": {"sha256": {"4": [OLD]}}}],
    }
    return {"pcrs": pcrs}


def pcr_4(digest: str) -> Value:
    return Value(("sha256", "4"), digest)


def test_each_change_has_its_line() -> None:
    before = policy()
    after = with_values(without_values(before, None, [pcr_4(OLD)]), None, [pcr_4(NEW)])
    after = with_values(after, 0, [pcr_4(NEW)])
    set_end(after, frozenset({NEW}), END)
    machines = " for Machines with pool=edge, vendor=one"
    assert describe_edit(before, after) == [
        f"added: sha256:4 {NEW}",
        f"added{machines}: sha256:4 {NEW}",
        f"removed: sha256:4 {OLD}",
        f"counts until 2026-12-31T00:00:00Z: sha256:4 {NEW}",
        f"counts until 2026-12-31T00:00:00Z{machines}: sha256:4 {NEW}",
    ]
    assert before == policy(), "the policy that was read stays as it is"


def test_value_that_loses_its_end_is_named() -> None:
    before, after = policy(), policy()
    set_end(before, frozenset({OLD}), END)
    assert describe_edit(before, after)[0] == (
        f"counts without the end that it had: sha256:4 {OLD}"
    )
    assert describe_edit(after, after) == []


def test_first_lists_of_a_policy_change_its_mode() -> None:
    """A value that is only recorded refuses nobody, and one list must not refuse all others."""
    after = with_values({}, None, [pcr_4(OLD)])
    assert describe_edit({}, after) == ["pcrs.mode: Record to Warn", f"added: sha256:4 {OLD}"]
    rules = {"eventLog": {"secureBoot": True}}
    loaders = with_values(rules, None, [Value(("bootLoaders",), OLD)])
    assert describe_edit(rules, loaders) == [f"added: bootLoaders {OLD}"]


def test_policy_that_would_be_invalid_is_no_edit() -> None:
    empty = without_values(policy(), None, [pcr_4(OLD)])
    with pytest.raises(EditInvalid, match=r"would be invalid: .*allowed\.sha256\.4"):
        ReviewedPolicy.of("p", empty)


@pytest.mark.parametrize(
    ("value", "is_unset"),
    [
        (pcr_4("00" * 32), True),
        (pcr_4("ff" * 32), True),
        (pcr_4(OLD), False),
        (pcr_4("00" * 31 + "ff"), False),
        (Value(("bootLoaders",), "00" * 32), False),
    ],
)
def test_value_of_a_pcr_without_a_measurement_says_nothing(value: Value, *, is_unset: bool) -> None:
    assert value.is_unset is is_unset
