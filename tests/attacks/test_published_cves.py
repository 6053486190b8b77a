"""Published incidents of other systems, and findings of reviews.

Each test has the name of an incident or a finding, and docs/threat-model.md lists all of them. If
no request can reach the affected part, the table names a test of that part. The families of attacks
in this directory have more variants of each.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from common.challenge import MEMBERS
from common.errors import AttestationError
from common.evidence import encode_attestation_data
from common.formats.pem import encode_block
from common.names import CLIENT_USAGES, PEM_REQUEST
from common.requests.binding import (
    SECRET_SIZE,
    ChallengeInputs,
    answer_extra_data,
    challenge_secret,
)
from common.requests.csr import build_pkcs10, encode_request
from signer.controller.reconcile.limits import BURST, ChallengeRateLimiter
from signer.errors import TooManyChallenges
from signer.kinds.node import Node
from signer.policy.load import PolicyFileInvalid, load_policies
from signer.policy.policy import PolicySet, TrustMode
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.attacks.certified_nodes import certified
from tests.attacks.runner import reconcile_once
from tests.attacks.scenarios import first_use
from tests.builders.certificates import authority, leaf
from tests.builders.forgery import SEQUENCE, tlv
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER
from tests.builders.scenario import (
    HOME,
    NODE,
    NOW,
    PROVIDER_ID,
    Scenario,
    default_keys,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import attestation_key, endorsement_key
from tests.fakes.claims import FakeClaimStore

# Attestation verifiers


def test_keylime_cve_2026_6420_nonce_that_is_always_the_same() -> None:
    """Each input changes the secret, each object has its own nonce, and all have 32 bytes."""
    inputs = ChallengeInputs(
        cluster_uid="a",
        signer_name="b",
        username="c",
        offer_uid="d",
        issued_at="e",
        pkcs10_sha256=b"f",
        ek_spki_sha256=b"g",
        ak_name=b"h",
    )
    others = [inputs._replace(**{f: value * 2}) for f, value in inputs._asdict().items()]
    secrets = {challenge_secret(m, i) for m in (b"1", b"2") for i in (inputs, *others)}
    assert len(secrets) == 2 * (1 + len(others))
    nonces = {
        answer_extra_data(
            secret,
            name=name,
            pkcs10_sha256=digest,
            expiration_seconds=seconds,
            usages=CLIENT_USAGES,
            members=MEMBERS,
        )
        for secret in secrets
        for name in ("x", "y")
        for digest in (bytes(32), b"\xff" * 32)
        for seconds in (None, 0, 600)
    }
    assert len(nonces) == 12 * len(secrets)
    assert {len(value) for value in secrets | nonces} == {SECRET_SIZE}


def test_spire_1_14_6_one_token_spent_twice() -> None:
    """Two answers to one challenge are for the same keys, so there is one claim."""
    scenario = Scenario()
    copied = scenario.answer_csr(name="kubelet-tpm-c")
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"
    assert reconcile_once(scenario, copied).reason == "AnswerNotBound"
    attested = scenario.attest(extra_data=scenario.extra_data("kubelet-tpm-c"))
    again = scenario.answer_csr(scenario.answer(attested), name="kubelet-tpm-c")
    assert reconcile_once(scenario, again).outcome == "issued"
    assert len(scenario.store.keys) == len(scenario.store.nodes) == 1


def test_spire_1_14_6_signature_over_one_document_and_reading_of_another() -> None:
    """The request that is certified is the one that the quote is bound to, byte for byte."""
    scenario = Scenario()
    answer = encode_attestation_data(scenario.answer())
    other = build_pkcs10(scenario.kubelet_key, node_name=NODE, provider_id=PROVIDER_ID)
    assert other != scenario.pkcs10()
    swapped = scenario.answer_csr(request=encode_request(other, answer))
    assert reconcile_once(scenario, swapped).reason == "AnswerNotBound"
    twice = encode_block(PEM_REQUEST, other) + encode_request(scenario.pkcs10(), answer)
    assert (
        reconcile_once(scenario, scenario.answer_csr(request=twice)).reason == "PemBlocksUnexpected"
    )


def test_keylime_cve_2026_1709_state_destroyed_by_an_unauthenticated_failure() -> None:
    """Invalid answers of others do not affect the valid answer of the node."""
    scenario = Scenario()
    valid = scenario.answer_csr()
    stranger = Scenario(ek=endorsement_key(), ak=attestation_key())
    for hostile in (
        stranger.answer_csr(),
        scenario.answer_csr(request=b""),
        scenario.answer_csr(replace(scenario.answer(), signature=b"")),
        scenario.answer_csr(replace(scenario.answer(), quote=stranger.answer().quote)),
    ):
        assert reconcile_once(scenario, hostile).outcome == "denied"
    assert reconcile_once(scenario, valid).outcome == "issued"


NESTED = tlv(SEQUENCE, b"\5\0")
for _ in range(200):
    NESTED = tlv(SEQUENCE, NESTED)


def test_go_attestation_287_certificate_of_another_endorsement_key() -> None:
    """Real laptops have such certificates. The message contains the remedy."""
    scenario = certified()
    other = leaf(authority("Vendor"), endorsement_key().private.public_key())
    scenario.certificates = (other,)
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert traces.reason == "EndorsementCertificateMismatch"
    assert "register the key" in traces.public


def test_constellation_azure_root_that_expired() -> None:
    """An expired root certifies no key, and the reason says so."""
    scenario = certified()
    scenario.now = NOW + timedelta(days=20 * 365)
    traces = reconcile_once(scenario, scenario.offer_csr())
    assert traces.reason == "EndorsementCertificateOutOfDate"
    expired = authority("Expired", begins=NOW - timedelta(days=9), ends=NOW - timedelta(days=1))
    anchors = load_trust_anchors({"expired.der": expired.der}, {})
    scenario = certified()
    scenario.anchors = anchors
    scenario.certificates = (leaf(expired, default_keys()[0].private.public_key()),)
    assert (
        reconcile_once(scenario, scenario.offer_csr()).reason == "EndorsementCertificateOutOfDate"
    )


# What reviews of this design found


@pytest.mark.parametrize("trust", [TrustMode.FIRST_USE, TrustMode.REGISTERED])
def test_review_an_offer_alone_pins_no_endorsement_key(trust: TrustMode) -> None:
    """An offer proves nothing, so the signer makes no claim."""
    scenario = first_use()
    scenario.change_policy("endorsement_key", trust=trust)
    if trust is TrustMode.REGISTERED:
        scenario.change_machine(registered_keys=(record_of(scenario.ek),))
    assert reconcile_once(scenario, scenario.offer_csr()).outcome == "challenged"
    assert not scenario.store.keys
    assert not scenario.store.nodes


def test_review_junk_answers_burn_no_challenge() -> None:
    """Everyone can answer a public challenge, so wrong answers do not use it up."""
    scenario = Scenario()
    for number in range(10):
        junk = scenario.answer_csr(scenario.answer(signature=bytes(72)), name=f"junk-{number}")
        assert reconcile_once(scenario, junk).outcome == "denied"
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


def test_review_uniqueness_is_the_object_that_is_created() -> None:
    """The first create wins. The other replica gets a conflict and reads the claim again."""
    scenario = first_use()
    abroad = first_use()
    abroad.change_cluster(key=replace(HOME, name="green"), uid="0" * 8 + scenario.cluster.uid[8:])
    abroad.store = abroad.inventory.store = scenario.store
    scenario.store.machines[abroad.cluster.key] = [machine()]

    def other_cluster() -> None:
        assert reconcile_once(abroad, abroad.answer_csr()).outcome == "issued"

    claims = FakeClaimStore(store=scenario.store, interrupt=other_cluster, interrupt_before=1)
    assert (
        reconcile_once(scenario, scenario.answer_csr(), claims=claims).reason
        == "EndorsementKeyInUse"
    )
    held = scenario.store.keys[key_name(scenario.ek)].held_by
    assert held is not None
    assert held.cluster == abroad.cluster.key


# CSR approvers


@pytest.mark.parametrize("suffix", ["bootstrap", "certificate-rotation"])
def test_machine_config_operator_741_forgotten_auto_approve_binding(suffix: str) -> None:
    """While Kubernetes auto-approves CSRs, the signer approves none and raises an alarm."""
    scenario = Scenario()
    scenario.change_cluster(auto_approve_bindings=frozenset({f"kubeadm:node-autoapprove-{suffix}"}))
    for csr in (scenario.offer_csr(), scenario.answer_csr()):
        traces = reconcile_once(scenario, csr)
        assert (traces.outcome, traces.reason) == ("waiting", "AutoApproveBindingPresent")
        assert "'alarm': True" in traces.logged


def test_cluster_machine_approver_310_pile_that_stops_everybody() -> None:
    """The limit applies to the requester that exceeds it, and to no other."""
    rate = ChallengeRateLimiter(lambda: 0.0)
    flooder, other = (HOME, "system:bootstrap:aaaaaa"), (HOME, "system:bootstrap:bbbbbb")
    for _ in range(int(BURST)):
        rate.acquire(flooder)
    with pytest.raises(TooManyChallenges):
        rate.acquire(flooder)
    rate.acquire(other)


Trouble = Callable[[Scenario], FakeClaimStore]


def caches_are_empty(scenario: Scenario) -> FakeClaimStore:
    """Use caches that have not synced."""
    scenario.inventory.filled = False
    return FakeClaimStore(store=scenario.store)


def claims_are_away(scenario: Scenario) -> FakeClaimStore:
    """Make the management cluster unavailable."""
    return FakeClaimStore(store=scenario.store, unavailable=True)


@pytest.mark.parametrize("trouble", [caches_are_empty, claims_are_away])
def test_kubelet_csr_approver_253_hiccup_that_denies_for_good(trouble: Trouble) -> None:
    """If the signer cannot decide, it writes no condition and tries again."""
    scenario = Scenario()
    claims = trouble(scenario)
    traces = reconcile_once(scenario, scenario.answer_csr(), claims=claims)
    assert traces.outcome == "retried"
    assert not traces.csr.conditions
    scenario.inventory.filled = True
    assert reconcile_once(scenario, scenario.answer_csr()).outcome == "issued"


@pytest.mark.parametrize("trust", list(TrustMode))
def test_cloud_provider_gcp_20_old_flow_when_attestation_fails(trust: TrustMode) -> None:
    """Every mode requires attestation, in a supported version."""
    scenario = Scenario()
    scenario.change_policy("endorsement_key", trust=trust)
    bare = scenario.answer_csr(request=encode_block(PEM_REQUEST, scenario.pkcs10()))
    assert reconcile_once(scenario, bare).reason == "PemBlocksUnexpected"
    other = scenario.answer_csr(request=encode_request(scenario.pkcs10(), b'{"version":"v0"}'))
    assert reconcile_once(scenario, other).reason == "UnsupportedVersion"
    insecure = scenario.answer_csr(signer_name=INSECURE_CLIENT_SIGNER)
    assert reconcile_once(scenario, insecure).reason == "NotOurSigner"


@pytest.mark.parametrize("text", ["", "[]", "{}", "policies:", "null", "trust: FirstUse"])
def test_approvers_broken_configuration_that_approves(text: str) -> None:
    """An empty or unknown policy file is refused, and there is no default policy."""
    with pytest.raises(PolicyFileInvalid):
        load_policies(text)
    with pytest.raises(AttestationError, match="no policy"):
        PolicySet(accepted=()).for_cluster(HOME, {})
    with pytest.raises(ValueError, match="no root"):
        load_trust_anchors({}, {})


def test_nodes_that_write_a_strangers_provider_id() -> None:
    """A node can cause a wrong `nodeRef`, which neither gives nor removes a node name."""
    scenario = Scenario()
    scenario.change_machine(node_ref="node-2.example")
    scenario.inventory.nodes = [Node(name="node-2.example", provider_id=PROVIDER_ID)]
    impostor = Scenario(ek=endorsement_key(), node_name="node-2.example")
    impostor.as_node()
    assert reconcile_once(scenario, impostor.answer_csr()).reason == "NodeNameMismatch"
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert traces.outcome == "issued"
