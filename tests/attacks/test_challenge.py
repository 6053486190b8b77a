"""Replays of valid answers, swapped keys, and challenges for something else.

Every reader of CSRs sees all challenges and answers, and can file them again: as another requester,
for another node, with another lifetime, in another cluster, or later. The quote contains one HMAC
over all of these. So each attack changes one input of a valid answer (C1, Q2). The answer of the
node itself stays valid.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from authenticator.errors import CredentialNotForThisTpm
from common.challenge import MEMBERS, Challenge, decode_challenge
from common.evidence import Answer, ChallengeReference, Offer
from common.formats.strict_json import format_time
from common.names import CHALLENGE_ANNOTATION, CLIENT_USAGES, SERVING_SIGNER
from common.public_keys import public_key_from_area, spki_sha256
from common.requests.binding import answer_extra_data, challenge_key_id, sha256
from common.tpm.public import PublicArea
from signer.errors import AnswerExpired, AnswerNotBound, ChallengeKeyUnknown, QuoteSignatureInvalid
from signer.kinds.csr import Condition, Csr
from signer.policy.policy import TrustMode
from signer.seams import ChallengeKeys
from signer.verify.requests.recognize import CsrKind
from tests.attacks.keys import ANSWER
from tests.attacks.runner import Attack, Mutation, assert_issued, assert_refused, reconcile_once
from tests.attacks.scenarios import renewal
from tests.builders.scenario import OFFER_UID, Scenario, key_name, machine
from tests.builders.software_tpm import attestation_key, endorsement_key
from tests.fakes.csrs import FakeCsrs
from tests.fakes.tpm import FakeTpm

OTHER_UID = "00000000-2222-4333-8444-555555555555"
TOKEN = "system:bootstrap:abcdef"
OTHER_KUBELET_KEY = ec.derive_private_key(0x99, ec.SECP256R1())


def made_for(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of ChallengeInputs
    """Answer a challenge that was made for something else."""

    def mutate(scenario: Scenario) -> Csr:
        attest = scenario.attest(extra_data=scenario.extra_data(ANSWER, **changes))
        return scenario.answer_csr(scenario.answer(attest))

    return mutate


def copied(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of Csr
    """File a good answer in another object."""
    return lambda scenario: scenario.answer_csr(**changes)


def referring(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of ChallengeReference
    """Refer to another challenge."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        reference = replace(answer.challenge, **changes)
        return scenario.answer_csr(replace(answer, challenge=reference))

    return mutate


def later(**elapsed: float) -> Mutation:
    """File a valid answer after this time."""

    def mutate(scenario: Scenario) -> Csr:
        csr = scenario.answer_csr()
        scenario.now += timedelta(**elapsed)
        return csr

    return mutate


def postdated(**elapsed: float) -> Mutation:
    """File an old answer with the current time as the time of its challenge."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        scenario.now += timedelta(**elapsed)
        reference = replace(answer.challenge, issued_at=format_time(scenario.now))
        return scenario.answer_csr(replace(answer, challenge=reference))

    return mutate


def signer_keys(current: bytes, previous: bytes | None = None) -> Mutation:
    """File an answer when the signer has other challenge keys."""

    def mutate(scenario: Scenario) -> Csr:
        csr = scenario.answer_csr()
        scenario.challenge_keys = ChallengeKeys(
            current=sha256(current), previous=previous and sha256(previous)
        )
        return csr

    return mutate


def under_previous_name(scenario: Scenario) -> Csr:
    """Name the previous challenge key, which the signer also knows."""
    assert scenario.challenge_keys.previous is not None
    mutate = referring(key=challenge_key_id(scenario.challenge_keys.previous))
    filed = mutate(scenario)
    assert isinstance(filed, Csr)
    return filed


def other_endorsement_key(scenario: Scenario) -> Csr:
    """Send the registered endorsement key, with the answer to a challenge for one's own.

    The attacker has a TPM; the node's endorsement key is public.
    """
    own = endorsement_key()
    bound = scenario.extra_data(ANSWER, ek_spki_sha256=bytes.fromhex(key_name(own)))
    return scenario.answer_csr(scenario.answer(scenario.attest(extra_data=bound)))


def own_endorsement_key(scenario: Scenario) -> Csr:
    """Send one's own endorsement key with the answer of the node's TPM."""
    return scenario.answer_csr(replace(scenario.answer(), ek_public=endorsement_key().tpm2b))


def other_attestation_key(scenario: Scenario) -> Csr:
    """Sign the right statement with another key than the activated one."""
    answer, other = scenario.answer(), attestation_key()
    swapped = replace(answer, ak_public=other.tpm2b, signature=other.sign(answer.quote))
    return scenario.answer_csr(swapped)


def name_without_key(scenario: Scenario) -> Csr:
    """Send the public area that was proved, and sign with another key (Keylime CVE-2021-3406)."""
    answer = scenario.answer()
    return scenario.answer_csr(replace(answer, signature=attestation_key().sign(answer.quote)))


def other_request(**changes: Any) -> Mutation:  # noqa: ANN401 - fields of Scenario
    """Send the node's answer with another request."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        for name, value in changes.items():
            setattr(scenario, name, value)
        scenario.request_der = b""
        return scenario.answer_csr(answer)

    return mutate


def taken_over(scenario: Scenario) -> Csr:
    """Take over the quote that the node's TPM made for a challenge to an offer of the attacker.

    That offer had the attacker's request and the node's public keys. The attacker wrote its
    challenge over the node's. It files the quote with its own request, under the name that the node
    chose, which was denied and deleted.
    """
    honest = scenario.pkcs10()
    scenario.kubelet_key, scenario.request_der = OTHER_KUBELET_KEY, b""
    attest = scenario.attest(extra_data=scenario.extra_data(ANSWER, quoted=honest))
    return scenario.answer_csr(scenario.answer(attest))


def other_node(scenario: Scenario) -> Csr:
    """Request another of the Machine's host names with the node's answer."""
    answer = scenario.answer()
    given = replace(scenario.machine.addresses[0], address="node-2.example")
    scenario.change_machine(addresses=(*scenario.machine.addresses, given))
    scenario.node_name, scenario.request_der = "node-2.example", b""
    return scenario.answer_csr(answer)


def other_provider_id(scenario: Scenario) -> Csr:
    """Request another Machine that also has this registered endorsement key."""
    answer = scenario.answer()
    scenario.change_machine(provider_id="metal://rack-1/slot-2")
    scenario.provider_id, scenario.request_der = "metal://rack-1/slot-2", b""
    return scenario.answer_csr(answer)


def other_cluster(scenario: Scenario) -> Csr:
    """File the answer in a cluster where everything has the same name."""
    csr = scenario.answer_csr()
    scenario.change_cluster(uid="00000000-8888-4777-8666-555555555555")
    return csr


def as_serving(scenario: Scenario) -> Csr:
    """Send the answer to the client signer's challenge to the serving signer."""
    scenario.as_node()
    attest = scenario.attest()
    scenario.for_serving("192.0.2.11")
    scenario.request_der = b""
    return scenario.answer_csr(scenario.answer(attest))


def serving_as_client(scenario: Scenario) -> Csr:
    """Send the answer to the serving signer's challenge to the client signer."""
    bound = scenario.extra_data(ANSWER, signer_name=SERVING_SIGNER)
    return scenario.answer_csr(scenario.answer(scenario.attest(extra_data=bound)))


def as_another_node(scenario: Scenario) -> Csr:
    """Renew with a good answer, filed by another node."""
    scenario.as_node()
    answer = scenario.answer()
    scenario.as_node("node-2.example")
    return scenario.answer_csr(answer)


def approved(mutate: Mutation) -> Mutation:
    """File it with the condition Approved, which proves nothing."""

    def mutate_approved(scenario: Scenario) -> Csr:
        csr = mutate(scenario)
        assert isinstance(csr, Csr)
        condition = Condition(type="Approved", reason="AutoApproved", message="by another approver")
        return replace(csr, conditions={"Approved": condition})

    return mutate_approved


def acted_on(*members: str) -> Mutation:
    """Change what the answer says of the challenge that the node has seen."""

    def mutate(scenario: Scenario) -> Csr:
        answer = scenario.answer()
        reference = replace(answer.challenge, members=members)
        return scenario.answer_csr(replace(answer, challenge=reference))

    return mutate


def extra(value: bytes) -> Mutation:
    """Quote other data than the answer to the challenge."""
    return lambda scenario: scenario.answer_csr(scenario.answer(scenario.attest(extra_data=value)))


def bare_secret(scenario: Scenario) -> Csr:
    """Quote the challenge's secret itself, so that it fits any object."""
    inputs = scenario.extra_data("")
    return scenario.answer_csr(scenario.answer(scenario.attest(extra_data=inputs)))


def widened(scenario: Scenario) -> Csr:
    """Get an answer for a day, and file it without a limit."""
    scenario.expiration_seconds = 86400
    answer = scenario.answer()
    scenario.expiration_seconds = None
    return scenario.answer_csr(answer)


TIME = [
    Attack(name, AnswerExpired, mutate)
    for name, mutate in {
        "replayed a second too late": later(minutes=15, seconds=1),
        "replayed a day later": later(days=1),
        "replayed a year later": later(days=365),
        "from a minute and a second ahead": later(seconds=-61),
        "from tomorrow": later(days=-1),
        "a challenge of the year 9999": referring(issued_at="9999-12-31T23:59:59Z"),
        "a challenge of the year 1": referring(issued_at="0001-01-01T00:00:00Z"),
        "an approved answer, too late": approved(later(minutes=16)),
    }.items()
] + [
    Attack("postdated by a second", AnswerNotBound, postdated(seconds=1)),
    Attack("postdated by a day", AnswerNotBound, postdated(days=1)),
    Attack("antedated", AnswerNotBound, referring(issued_at="2026-11-21T09:29:59Z")),
]
MASTER_KEYS = [
    Attack(
        "a challenge key that was destroyed",
        ChallengeKeyUnknown,
        signer_keys(b"next", b"next but one"),
    ),
    Attack(
        "the only challenge key, which was destroyed",
        ChallengeKeyUnknown,
        signer_keys(b"next"),
    ),
    Attack("a made-up key ID", ChallengeKeyUnknown, referring(key="0123456789abcdef")),
    Attack("key ID of zeros", ChallengeKeyUnknown, referring(key="0" * 16)),
    Attack("the previous challenge key's name", AnswerNotBound, under_previous_name),
]
INPUTS: dict[str, dict[str, Any]] = {
    "another cluster": {"cluster_uid": "00000000-8888-4777-8666-555555555555"},
    "no cluster": {"cluster_uid": ""},
    "the serving signer": {"signer_name": CsrKind.SERVING.value},
    "another token": {"username": "system:bootstrap:zzzzzz"},
    "a node": {"username": "system:node:node-1.example"},
    "another offer": {"offer_uid": OTHER_UID},
    "another time": {"issued_at": "2026-11-21T09:30:01Z"},
    "another request": {"pkcs10_sha256": bytes(32)},
    "another endorsement key": {"ek_spki_sha256": bytes(32)},
    "another attestation key": {"ak_name": b"\0\x0b" + bytes(32)},
    "fields that run together": {"signer_name": "", "username": CsrKind.CLIENT.value + TOKEN},
}
MADE_FOR = [
    Attack(f"a challenge made for {name}", AnswerNotBound, made_for(**changes))
    for name, changes in INPUTS.items()
]
COPIES = [
    Attack(f"copied {name}", AnswerNotBound, mutate)
    for name, mutate in {
        "under another name": copied(name="kubelet-tpm-c"),
        "under a longer name": copied(name=ANSWER + "b"),
        "under no name": copied(name="x"),
        "by another bootstrapper": copied(username="system:bootstrap:zzzzzz"),
        "by a bootstrapper without token": copied(username="alice"),
        "with a lifetime": copied(expiration_seconds=3600),
        "with a lifetime of a century": copied(expiration_seconds=2**31 - 1),
        "with the limit taken off": widened,
        "with more usages": copied(usages=("client auth", "digital signature", "key encipherment")),
        "into a cluster of equal names": other_cluster,
        "with another kubelet's key": other_request(kubelet_key=OTHER_KUBELET_KEY),
        "with another node's name": other_node,
        "with another Machine's provider ID": other_provider_id,
        "to the serving signer": as_serving,
        "from the serving signer": serving_as_client,
        "by another node": as_another_node,
        "by an approved object": approved(copied(name="kubelet-tpm-c")),
    }.items()
]
KEYS = [
    Attack("node's endorsement key, own challenge", AnswerNotBound, other_endorsement_key),
    Attack("own endorsement key, node's challenge", AnswerNotBound, own_endorsement_key),
    Attack("another attestation key", AnswerNotBound, other_attestation_key),
    Attack("own request, node's quote for its challenge", AnswerNotBound, taken_over),
    Attack(
        "another key than the proved name's (CVE-2021-3406)",
        QuoteSignatureInvalid,
        name_without_key,
    ),
]
SECRETS = [
    Attack(
        "an answer that says it acted on more of the challenge",
        AnswerNotBound,
        acted_on(*MEMBERS, "zz"),
    ),
    Attack("extraData of no challenge", AnswerNotBound, extra(sha256(b"guess"))),
    Attack("the object's name for extraData", AnswerNotBound, extra(ANSWER.encode())),
    Attack("the uid for extraData", AnswerNotBound, extra(OFFER_UID.encode())),
    Attack("an answer for an object of no name", AnswerNotBound, bare_secret),
]
ATTACKS = TIME + MASTER_KEYS + MADE_FOR + COPIES + KEYS + SECRETS


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_attack_is_refused(attack: Attack) -> None:
    assert_refused(attack)


@pytest.mark.parametrize("scenario", [Scenario, renewal])
def test_the_good_case_passes(scenario: Callable[[], Scenario]) -> None:
    assert_issued(scenario)


# Whole exchanges, with a TPM that opens challenges as a TPM does


class Node:
    """A node, or an attacker with a TPM: opens the challenges that the signer makes."""

    def __init__(self, seed: str) -> None:
        self.tpm = FakeTpm(seed, endorsement="L-2")
        self.keys = Offer(
            ek_public=self.tpm.endorsement_key().public,
            ek_certificates=(),
            ak_public=self.tpm.attestation_key().public,
        )

    def answer(self, scenario: Scenario, challenge: Challenge, *, name: str = ANSWER) -> Csr:
        """Open a challenge and answer it."""
        secret = self.tpm.activate_credential(challenge.credential_blob, challenge.encrypted_secret)
        extra_data = answer_extra_data(
            secret,
            name=name,
            pkcs10_sha256=sha256(scenario.pkcs10()),
            expiration_seconds=None,
            usages=CLIENT_USAGES,
            members=MEMBERS,
        )
        quote = self.tpm.quote(challenge.pcrs, extra_data)
        answer = Answer(
            ek_public=self.keys.ek_public,
            ek_certificates=(),
            ak_public=self.keys.ak_public,
            challenge=ChallengeReference(
                uid=OFFER_UID, issued_at=challenge.issued_at, key=challenge.key
            ),
            quote=quote.attest,
            signature=quote.signature,
            pcrs=quote.pcrs,
            event_log=None,
        )
        return scenario.answer_csr(answer, name=name)


def scenario_of(node: Node) -> Scenario:
    """Register the endorsement key of the TPM."""
    scenario = Scenario()
    named = spki_sha256(public_key_from_area(PublicArea.from_tpm2b(node.keys.ek_public)))
    record = replace(scenario.machine.registered_keys[0], spki_sha256=named)
    scenario.change_machine(registered_keys=(record,))
    return scenario


def challenged(scenario: Scenario, node: Node) -> Challenge:
    """File the node's offer, and return the challenge that it gets."""
    traces = reconcile_once(scenario, scenario.offer_csr(node.keys))
    assert traces.outcome == "challenged"
    return decode_challenge(traces.csr.annotations[CHALLENGE_ANNOTATION])


def test_a_real_tpm_opens_its_challenge_and_gets_its_certificate() -> None:
    """The good case of the tests below."""
    node = Node("honest")
    scenario = scenario_of(node)
    assert (
        reconcile_once(scenario, node.answer(scenario, challenged(scenario, node))).outcome
        == "issued"
    )


def test_another_tpm_opens_nothing() -> None:
    """Everyone can read a challenge, but only its TPM can open it."""
    node, stranger = Node("honest"), Node("stranger")
    scenario = scenario_of(node)
    challenge = challenged(scenario, node)
    with pytest.raises(CredentialNotForThisTpm):
        stranger.answer(scenario, challenge)


def test_a_tpm_opens_nothing_that_was_made_for_another_attestation_key() -> None:
    """The attacker offers its own software key with the node's endorsement key."""
    node, stranger = Node("honest"), Node("stranger")
    scenario = scenario_of(node)
    mixed = replace(node.keys, ak_public=stranger.keys.ak_public)
    traces = reconcile_once(scenario, scenario.offer_csr(mixed))
    challenge = decode_challenge(traces.csr.annotations[CHALLENGE_ANNOTATION])
    with pytest.raises(CredentialNotForThisTpm):
        node.answer(scenario, challenge)


def test_two_right_answers_are_two_certificates_for_one_key() -> None:
    """Both certificates are for the same kubelet key of the same node."""
    node = Node("honest")
    scenario = scenario_of(node)
    challenge = challenged(scenario, node)
    for name in (ANSWER, "kubelet-tpm-c"):
        assert (
            reconcile_once(scenario, node.answer(scenario, challenge, name=name)).outcome
            == "issued"
        )


def test_a_wrong_answer_costs_that_answer_alone() -> None:
    """Wrong answers to a public challenge do not invalidate it (Keylime CVE-2026-1709)."""
    node = Node("honest")
    scenario = scenario_of(node)
    challenge = challenged(scenario, node)
    good = node.answer(scenario, challenge)
    junk = replace(scenario.answer(), signature=bytes(72))
    for number in range(20):
        assert (
            reconcile_once(scenario, scenario.answer_csr(junk, name=f"junk-{number}")).outcome
            == "denied"
        )
    assert reconcile_once(scenario, good).outcome == "issued"


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "own blob": lambda d: d.update(credentialBlob=base64.b64encode(bytes(70)).decode()),
    "own secret": lambda d: d.update(encryptedSecret=base64.b64encode(bytes(70)).decode()),
    "PCRs that are always the same": lambda d: d.update(pcrs={"sha256": [17]}),
    "no PCRs": lambda d: d.update(pcrs={}),
    "the SHA-1 bank": lambda d: d.update(pcrs={"sha1": [0, 1, 2, 3, 4, 5, 6, 7]}),
    "an event log asked for": lambda d: d.update(eventLog=True),
    "an earlier time": lambda d: d.update(issuedAt="2026-11-21T09:29:59Z"),
    "a later time": lambda d: d.update(issuedAt="2026-11-21T09:30:59Z"),
    "another tag": lambda d: d.update(tag="0" * 64),
    "another version": lambda d: d.update(version="v0"),
    "a member more": lambda d: d.update(trust="FirstUse"),
    "a member less": lambda d: d.pop("tag"),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_forged_challenge_is_written_again(forge: Callable[[dict[str, Any]], object]) -> None:
    """The requester can set annotations at creation, so the signer replaces them."""
    node = Node("honest")
    scenario = scenario_of(node)
    first = reconcile_once(scenario, scenario.offer_csr(node.keys)).csr.annotations[
        CHALLENGE_ANNOTATION
    ]
    document = json.loads(first)
    forge(document)
    forged = json.dumps(document)
    csr = scenario.offer_csr(node.keys, annotations={CHALLENGE_ANNOTATION: forged})
    traces = reconcile_once(scenario, csr)
    assert traces.outcome == "challenged"
    written = traces.csr.annotations[CHALLENGE_ANNOTATION]
    assert written != forged
    assert (
        reconcile_once(scenario, node.answer(scenario, decode_challenge(written))).outcome
        == "issued"
    )


@pytest.mark.parametrize(
    "annotation", ["", "{}", "null", "[" * 8000, "x" * 30_000, "\ud800", '{"version":"v2"}']
)
def test_what_is_no_challenge_is_written_again(annotation: str) -> None:
    """The requester can set any text."""
    node = Node("honest")
    scenario = scenario_of(node)
    csr = scenario.offer_csr(node.keys, annotations={CHALLENGE_ANNOTATION: annotation})
    assert reconcile_once(scenario, csr).outcome == "challenged"


def test_a_challenge_copied_from_another_offer_is_written_again() -> None:
    """It is bound to the UID of the other offer, so its answer would be refused."""
    node = Node("honest")
    scenario = scenario_of(node)
    first = reconcile_once(scenario, scenario.offer_csr(node.keys)).csr.annotations[
        CHALLENGE_ANNOTATION
    ]
    copy = scenario.offer_csr(
        node.keys, name="kubelet-tpm-x", uid=OTHER_UID, annotations={CHALLENGE_ANNOTATION: first}
    )
    traces = reconcile_once(scenario, copy)
    assert traces.outcome == "challenged"
    assert traces.csr.annotations[CHALLENGE_ANNOTATION] != first


def test_our_own_challenge_is_left_alone() -> None:
    """A second reconciliation writes nothing, so two signers do not overwrite each other."""
    node, csrs = Node("honest"), FakeCsrs()
    scenario = scenario_of(node)
    csr = scenario.offer_csr(node.keys)
    assert reconcile_once(scenario, csr, csrs=csrs).outcome == "challenged"
    assert reconcile_once(scenario, csr, csrs=csrs).outcome == ""


def test_a_challenge_of_yesterdays_policy_is_written_again() -> None:
    """Its answer would quote other PCRs than the policy requests now."""
    node, csrs = Node("honest"), FakeCsrs()
    scenario = scenario_of(node)
    csr = scenario.offer_csr(node.keys)
    assert reconcile_once(scenario, csr, csrs=csrs).outcome == "challenged"
    scenario.change_policy("pcrs", selection={"sha256": (7,)})
    traces = reconcile_once(scenario, csr, csrs=csrs)
    assert traces.outcome == "challenged"
    written = decode_challenge(traces.csr.annotations[CHALLENGE_ANNOTATION])
    assert reconcile_once(scenario, node.answer(scenario, written)).outcome == "issued"


def test_annotations_on_an_answer_are_no_input() -> None:
    """The signer ignores a forged challenge and a copied pending reason."""
    scenario = Scenario()
    csr = scenario.answer_csr(
        name="kubelet-tpm-c", annotations={CHALLENGE_ANNOTATION: "{}", "approved": "true"}
    )
    assert reconcile_once(scenario, csr).reason == "AnswerNotBound"


def test_offer_alone_makes_no_claim() -> None:
    """The signer makes claims only after it has verified the quote."""
    node = Node("stranger")
    scenario = Scenario()
    scenario.store.machines[scenario.cluster.key] = [machine()]
    scenario.change_policy("endorsement_key", trust=TrustMode.FIRST_USE)
    challenged(scenario, node)
    assert not scenario.store.keys
    assert not scenario.store.nodes
