"""What a claim says of the policy under which the node attested."""

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.kinds.attested_node import AttestedNodeObject, BootState, MeasuredValues
from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import PcrMode, PcrSignatureRules, Policy
from signer.verify.attestation.measured_values import describe_boot
from signer.verify.claimed_answer import make_claims
from tests.builders.scenario import NOW, Scenario, signed
from tests.fakes.claims import FakeClaimStore


def claim(scenario: Scenario) -> AttestedNodeObject:
    verified = scenario.verify_answer()
    store = FakeClaimStore(store=scenario.store)
    make_claims(verified, scenario.context(), claims=store, sign=signed(NOW + timedelta(days=7)))
    return scenario.claim


def with_pcrs(mode: PcrMode, *, allowed: bool) -> Scenario:
    """Return a scenario whose policy compares PCRs, and allows the quoted values or none."""
    scenario = Scenario()
    values = {
        bank: {index: frozenset({digest}) for index, digest in digests.items()}
        for bank, digests in scenario.pcrs.items()
    }
    pcr_allowed = values if allowed else {}
    scenario.change_policy("pcrs", mode=mode, allowed=pcr_allowed)
    return scenario


def test_claim_has_the_name_of_the_policy() -> None:
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, name="edge")
    assert claim(scenario).policy == "edge"


def test_claim_says_why_the_key_was_trusted() -> None:
    assert claim(Scenario()).basis is TrustBasis.REGISTERED


def test_policy_without_rules_on_the_boot_gives_no_boot_state() -> None:
    assert claim(Scenario()).boot_state is None


@pytest.mark.parametrize(
    ("mode", "allowed", "state"),
    [
        (PcrMode.ENFORCE, True, BootState.VERIFIED),
        (PcrMode.WARN, True, BootState.VERIFIED),
        (PcrMode.WARN, False, BootState.MISMATCH),
    ],
)
def test_compared_values_are_verified_or_a_mismatch(
    mode: PcrMode, *, allowed: bool, state: BootState
) -> None:
    assert claim(with_pcrs(mode, allowed=allowed)).boot_state is state


def test_renewal_replaces_the_boot_state() -> None:
    scenario = with_pcrs(PcrMode.WARN, allowed=False)
    assert claim(scenario).boot_state is BootState.MISMATCH
    scenario.change_policy("pcrs", mode=PcrMode.RECORD)
    assert claim(scenario).boot_state is None


def test_claim_has_the_values_that_a_policy_can_allow() -> None:
    scenario = with_pcrs(PcrMode.ENFORCE, allowed=True)
    measured = claim(scenario).measured
    assert measured is not None
    assert measured.pcrs == {
        bank: {str(index): value.hex() for index, value in values.items()}
        for bank, values in scenario.pcrs.items()
    }


def test_claim_has_the_values_that_a_policy_only_records() -> None:
    """They were only in the log, which has no command any more that accepts them."""
    recorded = claim(Scenario()).measured
    assert recorded is not None
    assert recorded.pcrs == {
        bank: {str(index): value.hex() for index, value in values.items()}
        for bank, values in Scenario().pcrs.items()
    }


def test_values_that_a_vendor_signs_are_left_out() -> None:
    signed = PcrSignatureRules(keys={}, pcrs={"sha256": (7, 11)}, revoked=frozenset())
    pcrs = replace(Policy(name="p").pcrs, mode=PcrMode.ENFORCE, signed_by=(signed,))
    policy = replace(Policy(name="p"), pcrs=pcrs)
    quoted = {"sha256": {4: b"\4", 7: b"\7"}, "sha384": {7: b"\7"}}
    described = describe_boot(quoted, None, policy)
    assert described == MeasuredValues(pcrs={"sha256": {"4": "04"}, "sha384": {"7": "07"}})


def test_value_that_names_the_machine_is_left_out() -> None:
    """Each machine would be a group of its own."""
    pcrs = replace(Policy(name="p").pcrs, mode=PcrMode.ENFORCE, names_machine=True)
    policy = replace(Policy(name="p"), pcrs=pcrs)
    described = describe_boot({"sha256": {4: b"\4", 6: b"\6"}}, None, policy)
    assert described == MeasuredValues(pcrs={"sha256": {"4": "04"}})
