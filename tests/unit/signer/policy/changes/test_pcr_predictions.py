"""Values that a vendor predicts: their files, and how an import supersedes the one before."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.policy.changes.edits import EditInvalid, ReviewedPolicy, Value
from signer.policy.changes.pcr_predictions import (
    Import,
    PredictionsInvalid,
    import_values,
    read_predictions,
)

OWN, OLD, NEW, LATER = "0a" * 32, "aa" * 32, "bb" * 32, "cc" * 32
SHA384 = "dd" * 48
NOW = datetime(2026, 11, 24, tzinfo=UTC)
UNTIL = NOW + timedelta(days=30)
END = "2026-12-24T00:00:00Z"

FILES = {
    "pcrsys": {"pcrs": {"4": {"sha256": [OLD, NEW.upper()], "sha384": [SHA384]}}},
    "compute-pcrs": {
        "pcrs": [
            {"id": 4, "value": OLD, "events": [{"name": "EV_SEPARATOR", "pcr": 4, "hash": NEW}]},
            {"id": 4, "value": NEW, "events": []},
        ]
    },
    "systemd-measure": {
        "sha256": [
            {"phase": "enter-initrd", "pcr": 4, "hash": OLD},
            {"phase": "enter-initrd:leave-initrd", "pcr": 4, "hash": NEW},
        ]
    },
}


def pcr_4(*digests: str) -> frozenset[Value]:
    return frozenset(Value(("sha256", "4"), digest) for digest in digests)


def policy(*digests: str, **changes: Any) -> ReviewedPolicy:  # noqa: ANN401 - keys of `pcrs`
    """Return a policy with these values of PCR 4, and with one of PCR 7."""
    allowed = {"sha256": {"4": list(digests), "7": [OWN]}}
    pcrs = {"mode": "Enforce", "selection": {"sha256": [4, 7]}, "allowed": allowed, **changes}
    return ReviewedPolicy.of("images", {"pcrs": pcrs})


def imported(
    reviewed: ReviewedPolicy,
    recorded: frozenset[Value],
    *digests: str,
    others: frozenset[Value] = frozenset(),
) -> Import:
    return import_values(reviewed, recorded, pcr_4(*digests), others=others, now=NOW, until=UNTIL)


def allowed(done: Import) -> list[str]:
    digests: list[str] = done.spec["pcrs"]["allowed"]["sha256"]["4"]
    return digests


@pytest.mark.parametrize("form", FILES)
def test_files_of_all_programs_are_read(form: str) -> None:
    more = frozenset({Value(("sha384", "4"), SHA384)}) if form == "pcrsys" else frozenset()
    assert read_predictions(json.dumps(FILES[form]).encode()) == pcr_4(OLD, NEW) | more


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"{}", "no value is in it"),
        (b'{"pcrs":{}}', "no value is in it"),
        (b'{"pcrs":[],"pcrs":[]}', "repeats a name"),
        (b'{"pcrs":{"4":{"sha1":["' + b"aa" * 20 + b'"]}}}', "a bank that no policy can have"),
        (b'{"pcrs":{"24":{"sha256":["' + OLD.encode() + b'"]}}}', "PCR numbers from 0 to 23"),
        (b'{"pcrs":{"' + b"9" * 5000 + b'":{"sha256":["aa"]}}}', "PCR numbers from 0 to 23"),
        (b'{"pcrs":{"-1":{"sha256":["' + OLD.encode() + b'"]}}}', "PCR numbers from 0 to 23"),
        (b'{"pcrs":{"4":{"sha256":["aa"]}}}', "the size of their bank"),
        (b'{"pcrs":{"4":{"sha256":["zz"]}}}', "does not match its grammar"),
        (b'{"pcrs":{"4":{"sha256":[7]}}}', "does not match its grammar"),
        (b'{"pcrs":[{"value":"' + OLD.encode() + b'"}]}', "PCR numbers from 0 to 23"),
        (b'{"pcrs":[4]}', "must be an object"),
        (b'{"sha256":[{"pcrs":[11],"pol":"' + OLD.encode() + b'"}]}', "use pcrs.signedBy"),
    ],
)
def test_other_files_are_refused(content: bytes, problem: str) -> None:
    with pytest.raises(PredictionsInvalid, match=problem):
        read_predictions(content)


def test_first_import_ends_nothing_that_the_policy_had() -> None:
    done = imported(policy(OWN), frozenset(), NEW)
    assert allowed(done) == [OWN, NEW]
    assert "until" not in done.spec["pcrs"]
    assert done.recorded == pcr_4(NEW)


def test_next_import_ends_the_values_of_the_one_before() -> None:
    done = imported(policy(OWN, OLD), pcr_4(OLD), NEW)
    assert allowed(done) == [OWN, OLD, NEW]
    assert done.spec["pcrs"]["until"] == [{"value": OLD, "time": END}]
    assert done.recorded == pcr_4(OLD, NEW)


def test_value_that_the_policy_had_belongs_to_no_import() -> None:
    done = imported(policy(OWN), frozenset(), OWN)
    assert done.recorded == pcr_4()
    assert done.spec == policy(OWN).spec


def test_value_that_another_vendor_predicts_as_well_does_not_end() -> None:
    done = imported(policy(OLD), pcr_4(OLD), NEW, others=pcr_4(OLD))
    assert "until" not in done.spec["pcrs"]
    assert done.recorded == pcr_4(NEW)
    again = imported(policy(OLD), frozenset(), OLD, others=pcr_4(OLD))
    assert again.recorded == pcr_4(OLD)


def test_end_of_a_superseded_value_does_not_move() -> None:
    ends = [{"value": OLD, "time": "2026-12-01T00:00:00Z"}]
    done = imported(policy(OLD, NEW, until=ends), pcr_4(OLD, NEW), LATER)
    assert done.spec["pcrs"]["until"] == [*ends, {"value": NEW, "time": END}]
    assert done.recorded == pcr_4(OLD, NEW, LATER)


def test_value_that_has_ended_is_removed_by_the_next_import() -> None:
    ends = [{"value": OLD, "time": "2026-11-01T00:00:00Z"}]
    done = imported(policy(OLD, NEW, until=ends), pcr_4(OLD, NEW), NEW)
    assert allowed(done) == [NEW]
    assert "until" not in done.spec["pcrs"]
    assert done.recorded == pcr_4(NEW)


def test_predicted_again_a_value_loses_its_end() -> None:
    ends = [{"value": OLD, "time": "2026-12-01T00:00:00Z"}]
    done = imported(policy(OLD, NEW, until=ends), pcr_4(OLD, NEW), OLD)
    assert done.spec["pcrs"]["until"] == [{"value": NEW, "time": END}]


def test_value_that_an_operator_withdrew_is_no_longer_recorded() -> None:
    assert imported(policy(OWN), pcr_4(OLD), NEW).recorded == pcr_4(NEW)


def test_predictions_for_other_pcrs_are_left_out() -> None:
    predicted = pcr_4(NEW) | {Value(("sha256", "9"), OLD), Value(("sha384", "4"), SHA384)}
    done = import_values(
        policy(OWN), frozenset(), predicted, others=frozenset(), now=NOW, until=UNTIL
    )
    assert allowed(done) == [OWN, NEW]
    assert done.left_out == frozenset({("sha256", "9"), ("sha384", "4")})


@pytest.mark.parametrize(
    ("reviewed", "recorded", "problem"),
    [
        (policy(OWN, selection={"sha256": [7]}, allowed={"sha256": {"7": [OWN]}}), (), "no values"),
        (policy(OLD, allowed={"sha256": {"4": [OLD], "7": [OLD]}}), (OLD,), "it would end, too"),
    ],
    ids=["no list of the PCR", "listed elsewhere"],
)
def test_import_that_does_not_fit_the_policy_is_refused(
    reviewed: ReviewedPolicy, recorded: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(PredictionsInvalid, match=problem):
        imported(reviewed, pcr_4(*recorded), NEW)


def test_list_that_would_become_empty_is_refused() -> None:
    ends = [{"value": OWN, "time": "2026-11-01T00:00:00Z"}]
    recorded = frozenset({Value(("sha256", "7"), OWN)})
    done = imported(policy(OLD, until=ends), recorded, NEW)
    with pytest.raises(EditInvalid, match=r"would be invalid: .*allowed\.sha256\.7"):
        ReviewedPolicy.of("images", done.spec)
