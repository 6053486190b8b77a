"""The challenge annotation: when the signer writes it, and when it keeps the existing one."""

import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from common.challenge import decode_challenge, encode_challenge
from common.requests.binding import challenge_key_id, encode_fields, sha256
from signer.issue.challenge import ChallengeState, challenge_state, make_challenge
from signer.kinds.csr import Csr
from signer.policy.policy import EventLogRules, PcrRules, PcrSignatureRules
from signer.seams import ChallengeKeys
from tests.builders.scenario import Scenario

RULES = EventLogRules(
    secure_boot=True,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)


SIGNED = PcrSignatureRules(keys={}, pcrs={"sha256": (7,)}, revoked=frozenset())


def challenge(scenario: Scenario, csr: Csr | None = None, seed: int = 0) -> str:
    csr = scenario.offer_csr() if csr is None else csr
    return make_challenge(
        scenario.verify_offer(csr),
        csr,
        cluster=scenario.cluster,
        policy=scenario.policy,
        challenge_keys=scenario.challenge_keys,
        now=scenario.now,
        random=Random(seed).randbytes,
    )


def state(scenario: Scenario, annotation: str | None, csr: Csr | None = None) -> ChallengeState:
    return challenge_state(
        annotation,
        scenario.offer_csr() if csr is None else csr,
        cluster=scenario.cluster,
        policy=scenario.policy,
        challenge_keys=scenario.challenge_keys,
        now=scenario.now,
    )


def test_a_challenge_has_the_selection_and_event_log_of_the_policy() -> None:
    scenario = Scenario()
    scenario.policy = replace(
        scenario.policy,
        pcrs=replace(scenario.policy.pcrs, selection={"sha256": (4, 7), "sha384": (7,)}),
        event_log=RULES,
    )
    decoded = decode_challenge(challenge(scenario))
    assert decoded.pcrs == {"sha256": (4, 7), "sha384": (7,)}
    assert decoded.event_log
    assert decoded.issued_at == "2026-11-21T09:30:00Z"
    assert decoded.key == challenge_key_id(scenario.challenge_keys.current)
    assert scenario.challenge_keys.current.hex() not in challenge(scenario)


def test_each_challenge_has_a_new_seed() -> None:
    """The secret is derived; the seed that encrypts it is random."""
    scenario = Scenario()
    one, other = (decode_challenge(challenge(scenario, seed=seed)) for seed in (1, 2))
    assert one.credential_blob != other.credential_blob
    assert one.encrypted_secret != other.encrypted_secret


def test_a_valid_challenge_is_kept() -> None:
    """For 15 minutes, also after its key has become the previous one."""
    scenario = Scenario()
    annotation = challenge(scenario)
    for seconds in (0, -60, 60 + 15 * 60):
        scenario.now += timedelta(seconds=seconds)
        assert state(scenario, annotation) is ChallengeState.CURRENT
    scenario.challenge_keys = ChallengeKeys(
        current=sha256(b"next"), previous=scenario.challenge_keys.current
    )
    assert state(scenario, annotation) is ChallengeState.CURRENT


def test_the_tag_is_computed_as_specified() -> None:
    """Replicas of two versions would otherwise replace each other's challenges."""
    scenario = Scenario()
    csr = scenario.offer_csr()
    decoded = decode_challenge(challenge(scenario, csr))
    tagged = encode_fields(
        "challenge-tag/v1",
        encode_challenge(replace(decoded, tag="-")),
        scenario.cluster.uid,
        csr.signer_name,
        csr.username,
        csr.uid,
        sha256(csr.request),
    )
    assert decoded.tag == hmac.digest(scenario.challenge_keys.current, tagged, "sha256").hex()


def test_challenge_keys_are_not_in_their_repr() -> None:
    assert repr(Scenario().challenge_keys) == "ChallengeKeys()"


def changed(**members: object) -> Callable[[str], str]:
    return lambda text: json.dumps({**json.loads(text), **members}, separators=(",", ":"))


FORGERIES: dict[str, Callable[[str], str | None]] = {
    "absent": lambda _: None,
    "empty": lambda _: "",
    "not JSON": lambda _: "yes",
    "an empty object": lambda _: "{}",
    "huge": lambda text: text + " " * 10000,
    "issued later": changed(issuedAt="2026-11-21T09:30:01Z"),
    "other blob": changed(credentialBlob="AAAA"),
    "other secret": changed(encryptedSecret="AAAA"),
    "other PCRs": changed(pcrs={"sha256": [0]}),
    "with event log": changed(eventLog=True),
    "a member that nobody knows": changed(measureAgain=True),
    "another order": lambda text: json.dumps(json.loads(text), sort_keys=True),
    "other tag": changed(tag="0" * 64),
    "empty tag": changed(tag=""),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_challenge_is_replaced(forge: Callable[[str], str | None]) -> None:
    """The requester can create an offer with any annotation."""
    scenario = Scenario()
    assert state(scenario, forge(challenge(scenario))) is ChallengeState.REWRITE


BOUND_TO: dict[str, dict[str, Any]] = {
    "uid": {"uid": "00000000-2222-4333-8444-555555555555"},
    "requester": {"username": "system:bootstrap:zzzzzz"},
    "signer": {"signer_name": "cluster.x-k8s.io/kubelet-serving-tpm"},
    "request": {"request": b"other"},
}


@pytest.mark.parametrize("changes", BOUND_TO.values(), ids=BOUND_TO)
def test_a_challenge_of_another_offer_is_replaced(changes: dict[str, Any]) -> None:
    """A requester can copy a challenge from another CSR."""
    scenario = Scenario()
    annotation = challenge(scenario)
    csr = replace(scenario.offer_csr(), **changes)
    assert state(scenario, annotation, csr) is ChallengeState.REWRITE


def test_a_challenge_of_another_cluster_is_replaced() -> None:
    """All names may be equal there."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.change_cluster(uid="00000000-8888-4777-8666-555555555555")
    assert state(scenario, annotation) is ChallengeState.REWRITE


@pytest.mark.parametrize("age", [timedelta(minutes=15, seconds=1), timedelta(seconds=-61)])
def test_a_challenge_that_is_too_old_or_of_the_future_is_replaced(age: timedelta) -> None:
    """Its answer would be denied."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.now += age
    assert state(scenario, annotation) is ChallengeState.REWRITE


@pytest.mark.parametrize(
    "changes",
    [
        {"pcrs": PcrRules(selection={"sha256": (7,)})},
        {"pcrs": PcrRules(signed_by=(SIGNED,))},
        {"event_log": RULES},
    ],
)
def test_a_challenge_against_the_present_policy_is_replaced(changes: dict[str, Any]) -> None:
    """Its answer would have the wrong PCRs, or no event log."""
    scenario = Scenario()
    before = scenario.policy
    annotation = challenge(scenario)
    scenario.policy = replace(before, **changes)
    assert state(scenario, annotation) is ChallengeState.REWRITE
    annotation = challenge(scenario)
    assert state(scenario, annotation) is ChallengeState.CURRENT
    scenario.policy = before
    assert state(scenario, annotation) is ChallengeState.REWRITE


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, ChallengeState.UNKNOWN_KEY),
        (59, ChallengeState.UNKNOWN_KEY),
        (60, ChallengeState.REWRITE),
        (-60, ChallengeState.UNKNOWN_KEY),
        (-61, ChallengeState.REWRITE),
    ],
)
def test_a_challenge_under_an_unknown_key_is_kept_for_a_minute(
    seconds: int, expected: ChallengeState
) -> None:
    """During `clusterctl move`, another signer may have made it."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.challenge_keys = ChallengeKeys(current=sha256(b"other"), previous=None)
    scenario.now += timedelta(seconds=seconds)
    assert state(scenario, annotation) is expected
