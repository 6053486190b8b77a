"""Once the quote is verified, a refused answer has every reason; the first one decides."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.errors import AttestationError, Denied, Waiting
from signer.policy.policy import EventLogRules, FirstJoinRules, PcrMode, PcrVariant
from tests.builders.scenario import PROVIDER_ID, Scenario, key_name
from tests.builders.software_tpm import Pcrs, attestation_key
from tests.fakes.platforms import RULES

RULES_OF_LOG = EventLogRules(
    secure_boot=True,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)


def refuse_values(scenario: Scenario) -> None:
    scenario.change_policy("pcrs", mode=PcrMode.ENFORCE, allowed={"sha256": {}})


def refuse_log(scenario: Scenario) -> None:
    scenario.policy = replace(scenario.policy, event_log=RULES_OF_LOG)


def ban(scenario: Scenario) -> None:
    scenario.put_key(key_name(scenario.ek), banned=True)


def left_behind(verify: Callable[[], object]) -> list[object]:
    """Return what is left of the error of a refusal without the garbage collector."""
    errors: list[weakref.ref[AttestationError]] = []
    gc.collect()
    gc.disable()
    try:
        try:
            verify()
        except (Denied, Waiting) as error:
            errors.append(weakref.ref(error))
        return [error() for error in errors]
    finally:
        gc.enable()


def reasons(verify: Callable[[], object]) -> list[str]:
    """Return the reason that decides, and the further ones."""
    with pytest.raises((Denied, Waiting)) as caught:
        verify()
    error = caught.value
    assert isinstance(error, AttestationError)
    return [error.reason, *(further.reason for further in error.further)]


def test_every_reason_is_found_and_the_first_one_decides() -> None:
    scenario = Scenario()
    scenario.for_serving("10.9.9.9")
    refuse_values(scenario)
    refuse_log(scenario)
    ban(scenario)
    assert reasons(scenario.verify_answer) == [
        "PcrPolicyMismatch",
        "EventLogMissing",
        "EndorsementKeyBanned",
        "AddressNotOfMachine",
    ]


def test_every_reason_of_the_machine_is_found() -> None:
    scenario = Scenario()
    scenario.change_policy("node_names", machine_name=True)
    scenario.policy = replace(scenario.policy, first_join=FirstJoinRules(within=timedelta(hours=1)))
    scenario.change_machine(bootstrap_ready=False, addresses=(), registered_keys=())
    assert reasons(scenario.verify_answer) == [
        "BootstrapNotReady",
        "NodeNameMismatch",
        "NodeNameUnknown",
        "EndorsementKeyNotRegistered",
    ]


def test_a_reason_that_waits_decides_before_one_that_denies() -> None:
    scenario = Scenario()
    scenario.change_cluster(paused=True)
    ban(scenario)
    assert reasons(scenario.verify_answer) == ["ClusterPaused", "EndorsementKeyBanned"]


def forged(scenario: Scenario) -> None:
    """Answer with a quote by another key than that of the challenge."""
    forger = attestation_key()
    statement = scenario.attest().encode()
    answer = scenario.answer(statement, ak_public=forger.tpm2b, signature=forger.sign(statement))
    scenario.verify_answer(scenario.answer_csr(answer))


@pytest.mark.parametrize(
    ("verify", "only"),
    [(forged, "AnswerNotBound"), (Scenario.verify_offer, "ClusterPaused")],
)
def test_a_stranger_learns_the_first_reason_alone(
    verify: Callable[[Scenario], object], only: str
) -> None:
    scenario = Scenario()
    scenario.change_cluster(paused=True)
    refuse_values(scenario)
    ban(scenario)
    assert reasons(lambda: verify(scenario)) == [only]


def other_values(scenario: Scenario) -> Pcrs:
    return {bank: dict.fromkeys(values, bytes(32)) for bank, values in scenario.pcrs.items()}


def test_what_was_not_quoted_is_compared_with_nothing() -> None:
    """Q4 and E2 need what Q3 proves, and E3 needs the trusted key; M needs none of them."""
    scenario = Scenario()
    scenario.change_cluster(paused=True)
    refuse_values(scenario)
    ban(scenario)
    csr = scenario.answer_csr(scenario.answer(pcrs=other_values(scenario)))
    assert reasons(lambda: scenario.verify_answer(csr)) == ["PcrDigestMismatch", "ClusterPaused"]


def test_nothing_is_compared_with_a_machine_that_is_not_there() -> None:
    """Its labels choose values (Q4), so two checks miss it: that is one reason."""
    scenario = Scenario()
    variant = PcrVariant(match_labels={"pool": "gpu"}, allowed={})
    scenario.change_policy("pcrs", mode=PcrMode.ENFORCE, variants=(variant,))
    csr = scenario.answer_csr()
    scenario.store.machines[scenario.cluster.key].clear()
    ban(scenario)
    assert reasons(lambda: scenario.verify_answer(csr)) == ["MachineNotFound"]


def without_records(scenario: Scenario) -> None:
    scenario.change_machine(registered_keys=())
    scenario.change_policy("endorsement_key", platform=RULES)
    scenario.platforms.names[PROVIDER_ID] = (key_name(scenario.ek),)


def test_after_a_refusal_no_platform_is_asked() -> None:
    """What it would say is not known then: it is no reason, and changes no verdict."""
    scenario = Scenario()
    without_records(scenario)
    refuse_values(scenario)
    assert reasons(scenario.verify_answer) == ["PcrPolicyMismatch"]
    assert scenario.platforms.asked == []


def test_a_refusal_leaves_nothing_to_the_garbage_collector() -> None:
    """Its frames have the event log: 200 refused answers held 830 MiB."""
    scenario = Scenario()
    refuse_values(scenario)
    csr = scenario.answer_csr()
    assert left_behind(lambda: scenario.verify_answer(csr)) == [None]
    ban(scenario)
    assert left_behind(lambda: scenario.verify_answer(csr)) == [None]
    assert left_behind(scenario.verify_offer) == [None]
