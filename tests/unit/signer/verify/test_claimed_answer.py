"""What a claim says of the policy under which the node attested."""

from dataclasses import replace
from datetime import timedelta

from signer.model import AttestedNodeObject, BootState
from signer.policy import EventLogRules, PcrMode
from signer.verify.claimed_answer import make_claims
from tests.builders.scenario import HOME, NODE, NOW, Scenario, unreleased
from tests.fakes.claims import FakeClaimStore

NO_RULES = EventLogRules(
    secure_boot=False,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)


def claim(scenario: Scenario) -> AttestedNodeObject:
    """Make the claims of the scenario's answer, and return the AttestedNode."""
    verified = scenario.verify_answer()
    store = FakeClaimStore(store=scenario.store)
    certificate = unreleased(NOW + timedelta(days=7))
    make_claims(verified, scenario.context(), claims=store, certificate=certificate)
    node = scenario.store.find_node(HOME, NODE)
    assert node is not None
    return node


def with_pcrs(mode: PcrMode, *, allowed: bool) -> Scenario:
    """Return a scenario whose policy compares PCRs, and allows the quoted values or none."""
    scenario = Scenario()
    values = {
        bank: {index: frozenset({digest}) for index, digest in digests.items()}
        for bank, digests in scenario.pcrs.items()
    }
    pcr_allowed = values if allowed else {}
    scenario.policy = replace(scenario.policy, pcr_mode=mode, pcr_allowed=pcr_allowed)
    return scenario


def test_claim_has_the_name_of_the_policy() -> None:
    scenario = Scenario()
    scenario.policy = replace(scenario.policy, name="edge")
    assert claim(scenario).policy == "edge"


def test_policy_without_rules_on_the_boot_gives_no_boot_state() -> None:
    assert claim(Scenario()).boot_state is None


def test_enforced_values_are_verified() -> None:
    assert claim(with_pcrs(PcrMode.ENFORCE, allowed=True)).boot_state is BootState.VERIFIED


def test_values_that_the_policy_warns_about_are_verified_or_a_mismatch() -> None:
    assert claim(with_pcrs(PcrMode.WARN, allowed=True)).boot_state is BootState.VERIFIED
    assert claim(with_pcrs(PcrMode.WARN, allowed=False)).boot_state is BootState.MISMATCH


def test_renewal_replaces_the_boot_state() -> None:
    scenario = with_pcrs(PcrMode.WARN, allowed=False)
    assert claim(scenario).boot_state is BootState.MISMATCH
    scenario.policy = replace(scenario.policy, pcr_mode=PcrMode.RECORD)
    assert claim(scenario).boot_state is None
