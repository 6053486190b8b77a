"""K4: the certificate that filed a node's request is one of those last issued to it."""

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta

import pytest

from signer.errors import RequesterCredentialUnknown
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.csr import credential_id
from signer.policy.policy import Policy, RenewalRules, UnknownCredential
from signer.seams import WentBack
from signer.verify.claimed_answer import ClaimedAnswer, make_claims
from signer.verify.machines.claim_writes import WithheldCertificate
from signer.verify.requests.credentials import (
    MAX_CREDENTIAL_IDS,
    credential_ids_after_issue,
    find_unknown_credential,
    verify_known_credential,
)
from tests.builders.scenario import HOME, NODE, NOW, Scenario, unreleased
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import FakeClaimStore

A, B, C, NEW = (credential_id(name) for name in (b"a", b"b", b"c", b"new"))
NOT_AFTER = NOW + timedelta(days=7)
DENY = Policy(name="deny", renewals=RenewalRules(unknown_credential=UnknownCredential.DENY))
STRANGER = endorsement_key(0)


def recording(*ids: str) -> AttestedNodeObject:
    """Return the AttestedNode of a node to which these certificates were issued."""
    _, node = Scenario().put_claim(credential_ids=ids)
    return node


def renewal(presented: str, *recorded: str) -> Scenario:
    """Return a node with a claim that files its requests with a certificate."""
    scenario = Scenario(credential_id=presented)
    scenario.as_node()
    scenario.put_claim(credential_ids=recorded)
    return scenario


def claim(
    scenario: Scenario,
    *,
    certificate: WithheldCertificate | None = None,
    claims: FakeClaimStore | None = None,
) -> ClaimedAnswer:
    return make_claims(
        scenario.verify_answer(),
        scenario.context(),
        claims=FakeClaimStore(store=scenario.store) if claims is None else claims,
        sign=lambda _: unreleased(NOT_AFTER) if certificate is None else certificate,
    )


def recorded(scenario: Scenario) -> tuple[str, ...]:
    return scenario.claim.credential_ids


Known = tuple[str, AttestedNodeObject | None]
PASS: dict[str, Known] = {
    "undecided: an API server before 1.32": ("", recording(A)),
    "undecided: the first certificate of a control plane node": (A, None),
    "undecided: a claim of a signer that recorded none": (A, recording()),
    "the older of two": (A, recording(A, B)),
    "the newer of two": (B, recording(A, B)),
}


@pytest.mark.parametrize("known", PASS.values(), ids=PASS)
def test_k4_known_certificate_and_what_cannot_be_decided_pass(known: Known) -> None:
    verify_known_credential(*known)


# what is recorded


AFTER_ISSUE: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    # The node has no other one until it has received the new one.
    "a renewal keeps the one that filed it": (A, (A,), (A, NEW)),
    "a renewal ends those before it": (B, (A, B), (B, NEW)),
    # Each of them may have been released by a signer that crashed afterwards.
    "a renewal keeps those after it": (A, (A, B, C), (A, B, C, NEW)),
    "an unknown one is not recorded": (C, (A, B), (A, B, NEW)),
    # The renewal may have to be repeated with it.
    "the first one of a control plane node": (A, (), (A, NEW)),
    # Another replica may have released one of them for the same request.
    "a join with the same TPM keeps all": ("", (A, B), (A, B, NEW)),
    # After a conflict at K3, K2 is written again.
    "the same one is recorded once": (A, (A, NEW), (A, NEW)),
}


@pytest.mark.parametrize(("presented", "before", "after"), AFTER_ISSUE.values(), ids=AFTER_ISSUE)
def test_issued_certificate_is_recorded_after_those_that_the_node_may_have(
    presented: str, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    node = recording(*before)
    key = node.endorsement_key
    assert credential_ids_after_issue(node, key, presented=presented, issued=NEW) == after


@pytest.mark.parametrize(("presented", "after"), [("", (NEW,)), (A, (A, NEW))])
def test_first_certificate_is_recorded_with_the_one_that_filed_its_request(
    presented: str, after: tuple[str, ...]
) -> None:
    """A control plane node has a certificate that this signer did not issue."""
    assert credential_ids_after_issue(None, "key", presented=presented, issued=NEW) == after


def test_join_with_another_tpm_ends_the_certificates_of_the_former() -> None:
    node = recording(A, B)
    assert credential_ids_after_issue(node, "other", presented="", issued=NEW) == (NEW,)
    assert credential_ids_after_issue(node, "other", presented=C, issued=NEW) == (NEW,)


def test_renewal_with_another_tpm_keeps_the_certificate_that_filed_it() -> None:
    """The mainboard was replaced, and the disk with its certificate was not."""
    node = recording(A, B, C)
    assert credential_ids_after_issue(node, "other", presented=B, issued=NEW) == (B, NEW)


def test_crashes_without_end_keep_the_certificate_that_the_node_has() -> None:
    ids: tuple[str, ...] = (A,)
    all_issued = [credential_id(bytes([number])) for number in range(3 * MAX_CREDENTIAL_IDS)]
    for issued in all_issued:
        node = recording(*ids)
        ids = credential_ids_after_issue(node, node.endorsement_key, presented=A, issued=issued)
    assert len(ids) == MAX_CREDENTIAL_IDS
    assert ids == (A, *all_issued[1 - MAX_CREDENTIAL_IDS :])


# in the claims


def test_k4_certificate_is_recorded_before_it_is_released() -> None:
    scenario = renewal(B, A, B)
    claimed = claim(scenario)
    assert recorded(scenario) == (B, NEW)
    assert claimed.certificate == unreleased(NOT_AFTER)
    assert claimed.alarms == ()


def test_k4_serving_certificate_changes_no_client_certificate() -> None:
    scenario = Scenario(credential_id=B)
    scenario.for_serving(NODE)
    scenario.put_claim(credential_ids=(A, B))
    claim(scenario, certificate=replace(unreleased(NOT_AFTER), credential_id=""))
    assert recorded(scenario) == (B,)


def test_k4_unknown_certificate_is_an_alarm() -> None:
    scenario = renewal(C, A, B)
    claimed = claim(scenario)
    assert [alarm.reason for alarm in claimed.alarms] == ["RequesterCredentialUnknown"]
    assert recorded(scenario) == (A, B, NEW)


def test_k4_certificate_that_a_lost_claim_may_name_is_an_alarm() -> None:
    scenario = renewal(C, A, B)
    scenario.policy = DENY
    with pytest.raises(RequesterCredentialUnknown):
        claim(scenario)
    scenario.inventory.lost = WentBack(at=scenario.now, until=scenario.now + timedelta(days=1))
    [alarm] = claim(scenario).alarms
    assert alarm.reason == "RequesterCredentialUnknown"


def test_k4_bootstrapper_needs_no_known_certificate() -> None:
    """A bootstrap kubeconfig may have a client certificate, which this signer never issues."""
    scenario = Scenario(credential_id=C, policy=DENY)
    scenario.put_claim(credential_ids=(A,))
    assert claim(scenario).alarms == ()


def test_k4_certificate_that_the_cache_lacks_is_not_unknown() -> None:
    """The node renews at once with a certificate that another replica has just issued."""
    scenario = renewal(A, A)
    scenario.policy = DENY
    scenario.credential_id = B
    scenario.inventory.store = deepcopy(scenario.store)
    scenario.put_claim(credential_ids=(A, B))
    assert claim(scenario).alarms == ()
    assert recorded(scenario) == (B, NEW)


def test_k4_each_of_two_replicas_may_release_its_certificate() -> None:
    """Both write the claim for one CSR, and only the CSR decides whose certificate is released."""
    scenario = renewal(A, A)
    claims = FakeClaimStore(store=scenario.store)

    def other_replica() -> None:
        claim(scenario, certificate=unreleased(NOT_AFTER, "theirs"))

    claims.interrupt = other_replica
    ours = claim(scenario, claims=claims)
    theirs = unreleased(NOT_AFTER, "theirs").credential_id
    assert recorded(scenario) == (A, theirs, NEW)
    assert ours.alarms == ()
    for presented in (theirs, NEW):
        scenario.credential_id, scenario.request_der = presented, b""
        verify_known_credential(presented, scenario.store.find_node(HOME, NODE))


def test_k4_crash_after_the_claim_does_not_lock_the_node_out() -> None:
    """The node never receives the certificate, and renews with its old one again."""
    scenario = renewal(A, A)
    scenario.policy = DENY
    for name in ("lost", "lost too", "received"):
        assert claim(scenario, certificate=unreleased(NOT_AFTER, name)).alarms == ()
    received = unreleased(NOT_AFTER, "received").credential_id
    scenario.credential_id, scenario.request_der = received, b""
    claim(scenario)
    assert recorded(scenario) == (received, NEW)


# on offers


def unknown(scenario: Scenario, claims: FakeClaimStore) -> RequesterCredentialUnknown | None:
    presented = scenario.verify_offer().requester_credential
    return find_unknown_credential(presented, NODE, scenario.inventory, claims)


def test_k4_offer_with_a_known_certificate_reads_nothing() -> None:
    scenario = renewal(A, A)
    claims = FakeClaimStore(store=scenario.store)
    assert unknown(scenario, claims) is None
    assert claims.reads == []


def test_k4_offer_with_an_unknown_certificate_is_found() -> None:
    scenario = renewal(C, A)
    error = unknown(scenario, FakeClaimStore(store=scenario.store))
    assert error is not None
    assert error.detail == C


def test_k4_offer_is_compared_with_the_api_server_before_an_alarm() -> None:
    scenario = renewal(B, A)
    live = Scenario()
    live.put_claim(credential_ids=(A, B))
    assert unknown(scenario, FakeClaimStore(store=live.store)) is None
