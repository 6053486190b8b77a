"""PCRs (Q3, Q4): the selection that the policy requires, as quoted, with allowed values."""

from dataclasses import replace
from datetime import timedelta

import pytest

from common.tpm.constants import TPM_ALG_SHA256
from signer.errors import (
    PcrPolicyMismatch,
)
from signer.policy.policy import PcrMode, PcrValues, PcrVariant
from signer.verify.attestation.quoted_pcrs import verify_pcr_policy, verify_pcrs
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import attest, pcr_values

ASKED = {"sha256": (0, 1, 2, 3, 4, 5, 6, 7)}


@pytest.mark.parametrize(
    "selection",
    [
        ASKED,
        {"sha256": (7,)},
        {"sha384": (0, 23)},
        {"sha256": (0, 7), "sha384": (1,), "sha512": (2,)},
    ],
)
def test_q3_selection_of_the_policy_passes(selection: dict[str, tuple[int, ...]]) -> None:
    """One bank or several. The digest covers them in ascending order of algorithms."""
    scenario = Scenario()
    scenario.change_policy("pcrs", selection=selection)
    scenario.pcrs = pcr_values(selection)
    assert scenario.verify_answer().pcrs == pcr_values(selection)


def test_q3_order_of_banks_and_values_does_not_matter() -> None:
    """A TPM digests banks and PCRs in ascending order."""
    selection = {"sha384": (1, 2), "sha256": (0,)}
    values = pcr_values(selection)
    quoted = attest(values, b"")
    reordered = {bank: dict(reversed(digests.items())) for bank, digests in values.items()}
    assert (
        verify_pcrs(quoted, reordered, requested=selection, signature_hash=TPM_ALG_SHA256) == values
    )


def enforcing(
    scenario: Scenario,
    allowed: PcrValues,
    *variants: PcrVariant,
    mode: PcrMode = PcrMode.ENFORCE,
) -> None:
    """Use a policy that compares with allowed values."""
    scenario.change_policy("pcrs", mode=mode, allowed=allowed, variants=variants)


def exactly(scenario: Scenario, *others: bytes) -> dict[str, dict[int, frozenset[bytes]]]:
    """Allow the values of the TPM, and other values."""
    return {
        bank: {index: frozenset({value, *others}) for index, value in values.items()}
        for bank, values in scenario.pcrs.items()
    }


def test_q4_allowed_values_pass() -> None:
    """One of several for each PCR."""
    scenario = Scenario()
    enforcing(scenario, exactly(scenario, bytes(32)))
    scenario.verify_answer()


def test_q4_mode_record_accepts_all_values() -> None:
    """Operators draft a policy from the recorded values."""
    scenario = Scenario()
    scenario.pcrs = pcr_values(ASKED, b"other firmware")
    assert scenario.verify_answer().pcrs["sha256"][0] != pcr_values(ASKED)["sha256"][0]


def test_q4_mode_warn_accepts_another_value_with_an_alarm() -> None:
    """Operators introduce values without stopping nodes."""
    scenario = Scenario()
    allowed = exactly(scenario)
    enforcing(scenario, allowed, mode=PcrMode.WARN)
    assert scenario.verify_answer().alarms == ()
    allowed["sha256"][4] = frozenset({bytes(32)})
    [alarm] = scenario.verify_answer().alarms
    assert isinstance(alarm, PcrPolicyMismatch)
    value = scenario.pcrs["sha256"][4].hex()
    assert alarm.detail == f"sha256:4 is {value}, allowed {bytes(32).hex()}"


def test_q4_value_counts_until_its_end() -> None:
    scenario = Scenario()
    enforcing(scenario, exactly(scenario))
    end = scenario.now + timedelta(seconds=1)
    scenario.change_policy("pcrs", until={scenario.pcrs["sha256"][4]: end})
    scenario.verify_answer()


def test_q4_mode_warn_compares_with_the_values_of_the_variant() -> None:
    scenario = Scenario()
    workers = PcrVariant(match_labels={"pool": "workers"}, allowed={"sha256": {}})
    enforcing(scenario, exactly(scenario), workers, mode=PcrMode.WARN)
    assert len(scenario.verify_answer().alarms) == 1


def test_q4_empty_values_are_denied() -> None:
    """No policy selects no PCR; if one did, nothing would be checked."""
    policy = replace(Scenario().policy, pcrs=replace(Scenario().policy.pcrs, mode=PcrMode.ENFORCE))
    with pytest.raises(PcrPolicyMismatch):
        verify_pcr_policy({}, {}, policy.pcrs, None)


def test_q4_variant_applies_to_machines_with_its_labels() -> None:
    scenario = Scenario()
    good: PcrValues = exactly(scenario)
    bad: PcrValues = {"sha256": {}}
    workers = PcrVariant(match_labels={"pool": "workers"}, allowed=good)
    edge = PcrVariant(match_labels={"pool": "workers", "site": "edge"}, allowed=bad)
    enforcing(scenario, bad, edge, workers)
    scenario.verify_answer()
