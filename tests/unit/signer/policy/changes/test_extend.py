"""Learned values are added to a policy, and never narrow it."""

from typing import Any

import pytest

from signer.policy.changes.extend import extend_spec
from signer.policy.changes.learn import LearnError

OLD, NEW = "ab" * 32, "cd" * 32
SELECTION = {"sha256": [4, 7]}


def pcrs(value: str) -> dict[str, Any]:
    return {
        "selection": SELECTION,
        "mode": "Enforce",
        "allowed": {"sha256": {"4": [value], "7": [value]}},
    }


def test_learned_values_are_allowed_next_to_the_present_ones() -> None:
    spec = {"nameReuse": "AfterMachine", "pcrs": {**pcrs(OLD), "mode": "Enforce"}}
    extended = extend_spec("p", spec, {"pcrs": pcrs(NEW)})
    assert extended["pcrs"]["allowed"] == {"sha256": {"4": [OLD, NEW], "7": [OLD, NEW]}}
    assert extended["nameReuse"] == "AfterMachine"
    assert spec["pcrs"] == pcrs(OLD), "the policy that was read is unchanged"
    assert extend_spec("p", extended, {"pcrs": pcrs(NEW)}) == extended


@pytest.mark.parametrize("mode", ["Warn", "Enforce"])
def test_mode_of_the_policy_stays(mode: str) -> None:
    spec = {"pcrs": {**pcrs(OLD), "mode": mode}}
    assert extend_spec("p", spec, {"pcrs": pcrs(NEW)})["pcrs"]["mode"] == mode


@pytest.mark.parametrize("spec", [{}, {"pcrs": {}}, {"pcrs": {"mode": "Record"}}])
def test_policy_that_only_records_is_not_made_to_enforce(spec: dict[str, Any]) -> None:
    """It was turned into `Enforce`, for all of its Clusters."""
    with pytest.raises(LearnError, match="mode Record, which allows all values"):
        extend_spec("p", spec, {"pcrs": pcrs(NEW)})


def test_policy_without_a_selection_has_the_default_one() -> None:
    allowed = {"sha256": {str(index): [OLD] for index in range(8)}}
    learned = {"selection": {"sha256": [*range(8)]}, "mode": "Enforce", "allowed": allowed}
    spec = {"pcrs": {"mode": "Warn", "allowed": allowed}}
    assert extend_spec("p", spec, {"pcrs": learned}) == spec


def boot(**rules: Any) -> dict[str, Any]:  # noqa: ANN401 - the value of any rule
    return {"pcrs": pcrs(NEW), "eventLog": {"secureBoot": True, **rules}}


def test_only_lists_that_the_policy_has_are_extended() -> None:
    spec = {"pcrs": pcrs(OLD), "eventLog": {"secureBoot": True, "platformKeys": [OLD]}}
    extended = extend_spec("p", spec, boot(platformKeys=[NEW], bootLoaders=[NEW]))
    assert extended["eventLog"] == {"secureBoot": True, "platformKeys": [OLD, NEW]}


def test_pcr_that_names_the_machine_is_not_learned() -> None:
    learned = pcrs(NEW)
    learned["selection"] = {"sha256": [4, 6, 7]}
    learned["allowed"] = {"sha256": {str(index): [NEW] for index in (4, 6, 7)}}
    spec = {"attestationKey": {"certificateAuthorities": ["/a"]}, "pcrs": pcrs(OLD)}
    allowed = extend_spec("p", spec, {"pcrs": learned})["pcrs"]["allowed"]
    assert allowed == {"sha256": {"4": [OLD, NEW], "7": [OLD, NEW]}}


def test_event_log_rules_are_not_added_to_a_policy_without_them() -> None:
    assert "eventLog" not in extend_spec("p", {"pcrs": pcrs(OLD)}, boot(platformKeys=[NEW]))


@pytest.mark.parametrize(
    ("spec", "learned", "problem"),
    [
        (
            {"pcrs": {**pcrs(OLD), "selection": {"sha256": [7]}}},
            {"pcrs": pcrs(NEW)},
            "the policy selects {'sha256': \\[7\\]}",
        ),
        (
            {"pcrs": pcrs(OLD), "eventLog": {"secureBoot": True}},
            {"pcrs": pcrs(NEW)},
            "the nodes sent none",
        ),
        (
            {"pcrs": pcrs(OLD), "eventLog": {"secureBoot": True, "platformKeys": [OLD]}},
            {"pcrs": pcrs(NEW), "eventLog": {"platformKeys": [NEW]}},
            "booted without it",
        ),
        (
            {"pcrs": pcrs(OLD), "eventLog": {"platformKeys": [OLD], "bootLoaders": [OLD]}},
            boot(platformKeys=[NEW]),
            "measured nothing for bootLoaders",
        ),
        ({"pcrs": pcrs(OLD), "unknown": 1}, {"pcrs": pcrs(NEW)}, "unknown"),
    ],
)
def test_policy_that_does_not_fit_the_nodes_is_not_extended(
    spec: dict[str, Any], learned: dict[str, Any], problem: str
) -> None:
    with pytest.raises(LearnError, match=problem):
        extend_spec("p", spec, learned)
