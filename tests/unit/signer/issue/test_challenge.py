"""The challenge annotation: written when it has to be, and left alone while ours stands."""

import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from common.binding import challenge_key_id, encode_fields, sha256
from common.evidence import decode_challenge, encode_challenge
from common.tpm.constants import ObjectAttributes
from signer.errors import AttestationKeyAttributesNotAllowed, EndorsementKeyNotRegistered
from signer.issue.challenge import ChallengeState, challenge_state, make_challenge
from signer.model import ChallengeKeys, Csr
from signer.policy import EventLogRules
from tests.builders.scenario import Scenario, machine
from tests.builders.software_tpm import TpmKey

RULES = EventLogRules(
    secure_boot=True,
    platform_keys=frozenset(),
    signature_databases=frozenset(),
    boot_loaders=frozenset(),
)


def challenge(scenario: Scenario, csr: Csr | None = None, seed: int = 0) -> str:
    """Judge the offer, and challenge it."""
    csr = scenario.offer_csr() if csr is None else csr
    return make_challenge(
        scenario.judge_offer(csr),
        csr,
        cluster=scenario.cluster,
        policy=scenario.policy,
        masters=scenario.challenge_keys,
        now=scenario.now,
        random=Random(seed).randbytes,
    )


def state(scenario: Scenario, annotation: str | None, csr: Csr | None = None) -> ChallengeState:
    """Look at an annotation."""
    return challenge_state(
        annotation,
        scenario.offer_csr() if csr is None else csr,
        cluster=scenario.cluster,
        policy=scenario.policy,
        masters=scenario.challenge_keys,
        now=scenario.now,
    )


def test_a_challenge_asks_what_the_policy_asks() -> None:
    """Selection and event log are today's."""
    scenario = Scenario()
    scenario.policy = replace(
        scenario.policy,
        pcr_selection={"sha256": (4, 7), "sha384": (7,)},
        event_log=RULES,
    )
    made = decode_challenge(challenge(scenario))
    assert made.pcrs == {"sha256": (4, 7), "sha384": (7,)}
    assert made.event_log
    assert made.issued_at == "2026-11-21T09:30:00Z"
    assert made.key == challenge_key_id(scenario.challenge_keys.current)
    assert scenario.challenge_keys.current.hex() not in challenge(scenario)


def test_each_challenge_is_wrapped_afresh() -> None:
    """The secret is derived; the seed around it is not."""
    scenario = Scenario()
    one, other = (decode_challenge(challenge(scenario, seed=seed)) for seed in (1, 2))
    assert one.credential_blob != other.credential_blob
    assert one.encrypted_secret != other.encrypted_secret


def test_ours_stands_as_it_is() -> None:
    """For fifteen minutes, and when the master has moved on to previous."""
    scenario = Scenario()
    annotation = challenge(scenario)
    assert state(scenario, annotation) is ChallengeState.CURRENT
    scenario.now -= timedelta(seconds=60)
    assert state(scenario, annotation) is ChallengeState.CURRENT
    scenario.now += timedelta(seconds=60, minutes=15)
    assert state(scenario, annotation) is ChallengeState.CURRENT
    scenario.challenge_keys = ChallengeKeys(
        current=sha256(b"next"), previous=scenario.challenge_keys.current
    )
    assert state(scenario, annotation) is ChallengeState.CURRENT


def test_the_tag_is_the_same_in_every_version_of_the_signer() -> None:
    """An HMAC under the master: replicas of two would write each other's challenges again."""
    scenario = Scenario()
    csr = scenario.offer_csr()
    made = decode_challenge(challenge(scenario, csr))
    tagged = encode_fields(
        "challenge-tag/v1",
        encode_challenge(replace(made, tag="-")),
        scenario.cluster.uid,
        csr.signer_name,
        csr.username,
        csr.uid,
        sha256(csr.request),
    )
    assert made.tag == hmac.digest(scenario.challenge_keys.current, tagged, "sha256").hex()


def test_masters_are_not_shown() -> None:
    """Where somebody logs what is at hand."""
    assert repr(Scenario().challenge_keys) == "ChallengeKeys()"


def changed(**members: object) -> Callable[[str], str]:
    """Change members of the annotation."""
    return lambda text: json.dumps({**json.loads(text), **members}, separators=(",", ":"))


FORGERIES: dict[str, Callable[[str], str | None]] = {
    "absent": lambda _: None,
    "empty": lambda _: "",
    "no JSON": lambda _: "yes",
    "nothing in it": lambda _: "{}",
    "huge": lambda text: text + " " * 10000,
    "issued later": changed(issuedAt="2026-11-21T09:30:01Z"),
    "other blob": changed(credentialBlob="AAAA"),
    "other secret": changed(encryptedSecret="AAAA"),
    "other PCRs": changed(pcrs={"sha256": [0]}),
    "with event log": changed(eventLog=True),
    "other tag": changed(tag="0" * 64),
    "empty tag": changed(tag=""),
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
def test_what_is_not_ours_is_written_again(forge: Callable[[str], str | None]) -> None:
    """Annotations at creation are the requester's: none of them counts."""
    scenario = Scenario()
    assert state(scenario, forge(challenge(scenario))) is ChallengeState.REWRITE


MADE_FOR: dict[str, dict[str, Any]] = {
    "uid": {"uid": "00000000-2222-4333-8444-555555555555"},
    "requester": {"username": "system:bootstrap:zzzzzz"},
    "signer": {"signer_name": "cluster.x-k8s.io/kubelet-serving-tpm"},
    "request": {"request": b"other"},
}


@pytest.mark.parametrize("changes", MADE_FOR.values(), ids=MADE_FOR)
def test_one_that_was_made_for_another_offer_is_written_again(changes: dict[str, Any]) -> None:
    """A requester may copy a challenge from another CSR."""
    scenario = Scenario()
    annotation = challenge(scenario)
    csr = replace(scenario.offer_csr(), **changes)
    assert state(scenario, annotation, csr) is ChallengeState.REWRITE


def test_one_of_another_cluster_is_written_again() -> None:
    """Names may be equal there."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.change_cluster(uid="00000000-8888-4777-8666-555555555555")
    assert state(scenario, annotation) is ChallengeState.REWRITE


@pytest.mark.parametrize("age", [timedelta(minutes=15, seconds=1), timedelta(seconds=-61)])
def test_one_out_of_time_is_written_again(age: timedelta) -> None:
    """Its answer would be denied."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.now += age
    assert state(scenario, annotation) is ChallengeState.REWRITE


@pytest.mark.parametrize("changes", [{"pcr_selection": {"sha256": (7,)}}, {"event_log": RULES}])
def test_one_against_todays_policy_is_written_again(changes: dict[str, Any]) -> None:
    """Its answer would be of the wrong PCRs, or without the event log."""
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
def test_one_under_an_unknown_key_is_left_alone_for_a_minute(
    seconds: int, expected: ChallengeState
) -> None:
    """It may be another signer's, while a management cluster is moved."""
    scenario = Scenario()
    annotation = challenge(scenario)
    scenario.challenge_keys = ChallengeKeys(current=sha256(b"other"), previous=None)
    scenario.now += timedelta(seconds=seconds)
    assert state(scenario, annotation) is expected


def test_a_key_that_is_not_on_record_gets_no_challenge() -> None:
    """E comes before the challenge."""
    scenario = Scenario()
    scenario.store.machines[scenario.cluster.key] = [machine()]
    with pytest.raises(EndorsementKeyNotRegistered):
        scenario.judge_offer()


def test_a1_a_key_that_leaves_its_tpm_gets_no_challenge() -> None:
    """A comes before the challenge as well."""
    scenario = Scenario()
    public = replace(
        scenario.ak.public,
        attributes=scenario.ak.public.attributes & ~ObjectAttributes.FIXEDTPM,
    )
    scenario.ak = TpmKey(private=scenario.ak.private, public=public)
    with pytest.raises(AttestationKeyAttributesNotAllowed):
        scenario.judge_offer()
