"""A challenge and an answer with one more member, as a later version could write them.

The node ignores what it does not know of a challenge, so that a later signer can ask for more
evidence. Everything else is strict. This fixture is kept: later versions must read it, too.
Source: docs/protocol.md section 3, "Extensions".
"""

import json

import pytest

from common.challenge import MEMBERS, decode_challenge
from common.errors import AttestationDataMalformed
from common.evidence import Answer, decode_attestation_data, encode_attestation_data
from common.names import CHALLENGE_ANNOTATION
from signer.issue.challenge import ChallengeState, challenge_state
from tests.attacks.runner import reconcile_once
from tests.builders.scenario import NOW, Scenario
from tests.fakes.node import FakeNode

LATER: dict[str, object] = {"measureAgain": {"pcrs": {"sha256": [11]}}}


def extended(text: str) -> str:
    return json.dumps({**json.loads(text), **LATER}, separators=(",", ":"))


def test_node_answers_the_challenge_of_a_later_signer() -> None:
    node = FakeNode()
    node.cluster.change_challenge = extended
    node.obtain()
    [answer] = node.cluster.answers
    assert answer.challenge.members == MEMBERS, "the node says that it did not act on the new one"


def test_signer_replaces_a_challenge_that_another_has_extended() -> None:
    scenario = Scenario()
    made = reconcile_once(scenario, scenario.offer_csr()).csr
    text = made.annotations[CHALLENGE_ANNOTATION]
    assert decode_challenge(extended(text)) == decode_challenge(text)
    states = [
        challenge_state(
            each,
            made,
            cluster=scenario.cluster,
            policy=scenario.policy,
            challenge_keys=scenario.challenge_keys,
            now=NOW,
        )
        for each in (text, extended(text))
    ]
    assert states == [ChallengeState.CURRENT, ChallengeState.REWRITE]


def test_signer_accepts_no_more_evidence_than_it_knows() -> None:
    text = encode_attestation_data(Scenario().answer()).decode()
    assert isinstance(decode_attestation_data(text.encode()), Answer)
    with pytest.raises(AttestationDataMalformed):
        decode_attestation_data(extended(text).encode())


def test_signer_accepts_the_answer_of_a_later_node() -> None:
    """Its evidence is that of this version; it acted on more members of the challenge."""
    scenario = Scenario()
    scenario.members = (*MEMBERS, "zz")
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
