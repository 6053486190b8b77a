"""CsrState of one CSR: what each verdict writes, and crashes at every step."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from common.challenge import decode_challenge
from common.errors import ApiServerUnavailable
from common.formats.pem import encode_block
from common.names import (
    CHALLENGE_ANNOTATION,
    PEM_REQUEST,
    PENDING_REASON_ANNOTATION,
)
from common.requests.binding import challenge_key_id, sha256
from common.requests.csr import decode_request, encode_request
from signer.controller.observability.metrics import VERDICTS
from signer.controller.queue.workqueue import DONE, RETRY, Requeue, Result
from signer.controller.reconcile.limits import MAX_BYTES_OF_NODE
from signer.controller.reconcile.reconciler import CsrReconciler
from signer.kinds.csr import Condition, Csr, credential_id
from signer.policy.policy import (
    AccessReview,
    Approval,
    AutoApproveBindings,
    ClusterSelector,
    NameReuse,
    PcrMode,
    Policy,
    PolicySet,
    RefusedPolicy,
    UnknownCredential,
)
from signer.seams import ChallengeKeys
from signer.verify.requests.recognize import CsrKind
from signer.verify.x509.trust_anchors import NO_ANCHORS
from tests.builders.reconciler import Authorities, Rate, ReconcilerFixture
from tests.builders.renewing_node import COPIED, KNOWN, alarms, of_a_node
from tests.builders.scenario import (
    ABROAD,
    HOME,
    NODE,
    PROVIDER_ID,
    Scenario,
    key_name,
    machine,
    record_of,
)
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import FakeClaimStore
from tests.fakes.csrs import FakeCsrs
from tests.fakes.policies import FixedPolicies

APPROVED = Condition(type="Approved", reason="ByHand", message="trust me")


def builtin(scenario: Scenario, *names: str) -> Csr:
    scenario.for_serving(*names)
    scenario.kind = CsrKind.BUILTIN_SERVING
    block = encode_block(PEM_REQUEST, scenario.pkcs10())
    return scenario.csr(block, name="csr-builtin")


def of_version_9(csr: Csr) -> Csr:
    """Return a CSR with an unknown protocol version."""
    der, data = decode_request(csr.request)
    later = data.replace(b'"version":"v1"', b'"version":"v9"')
    assert later != data
    return replace(csr, request=encode_request(der, later))


def test_an_offer_costs_one_annotation_and_no_other_call() -> None:
    """An offer proves nothing, so it must not cause other calls (protocol.md, section 3)."""
    fixture = ReconcilerFixture()
    fixture.claims.unavailable = True
    fixture.authorities.away = True
    csr = fixture.file(fixture.scenario.offer_csr())
    assert fixture.reconcile(csr) == DONE
    challenge = decode_challenge(fixture.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION])
    assert challenge.key == challenge_key_id(fixture.scenario.challenge_keys.current)
    assert fixture.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]
    assert fixture.csrs.events == []
    assert fixture.scenario.store.keys == {}


def test_a_valid_challenge_is_not_rewritten() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.offer_csr())
    fixture.reconcile(csr)
    fixture.rate.left = 0
    assert fixture.reconcile(fixture.csrs.stored[csr.name]) == DONE
    assert len(fixture.csrs.writes) == 1


def test_a_forged_challenge_is_replaced() -> None:
    """The requester may set any annotation when it files the offer."""
    fixture = ReconcilerFixture()
    forged = fixture.scenario.offer_csr(annotations={CHALLENGE_ANNOTATION: "{}"})
    csr = fixture.file(forged)
    assert fixture.reconcile(csr) == DONE
    decode_challenge(fixture.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION])


def foreign(fixture: ReconcilerFixture) -> Csr:
    """Return an offer that another signer challenged under its own challenge key."""
    theirs = ChallengeKeys(current=sha256(b"theirs"), previous=None)
    fixture.keys.known = fixture.keys.live = theirs
    csr = fixture.file(fixture.scenario.offer_csr())
    fixture.reconcile(csr)
    fixture.keys.known = fixture.keys.live = fixture.scenario.challenge_keys
    fixture.csrs.writes.clear()
    return fixture.csrs.stored[csr.name]


def test_a_challenge_under_an_unknown_key_is_replaced_after_a_minute() -> None:
    fixture = ReconcilerFixture()
    csr = foreign(fixture)
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    assert (fixture.csrs.writes, fixture.keys.reads) == ([], 1)
    fixture.scenario.now += timedelta(seconds=61)
    assert fixture.reconcile(csr) == DONE
    assert len(fixture.csrs.writes) == 1


def test_the_secret_is_read_before_a_challenge_key_counts_as_unknown() -> None:
    fixture = ReconcilerFixture()
    csr = foreign(fixture)
    fixture.keys.live = ChallengeKeys(current=sha256(b"theirs"), previous=None)
    assert fixture.reconcile(csr) == DONE
    assert fixture.csrs.writes == []


def test_an_offer_above_the_rate_limit_is_retried() -> None:
    fixture = ReconcilerFixture(rate=Rate(left=0))
    csr = fixture.file(fixture.scenario.offer_csr())
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.writes == []


@pytest.mark.parametrize("waits", [False, True])
def test_an_offer_whose_annotations_leave_no_room_is_denied(*, waits: bool) -> None:
    fixture = ReconcilerFixture(csrs=FakeCsrs(annotations_size=10))
    if waits:
        fixture.scenario.store.machines[HOME] = []
    csr = fixture.file(fixture.scenario.offer_csr())
    assert fixture.reason(csr) == "Denied AnnotationsFull"


def test_an_unchanged_reason_is_written_once() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.store.machines[HOME] = []
    csr = fixture.file(fixture.scenario.offer_csr())
    fixture.reconcile(csr)
    assert fixture.reconcile(fixture.csrs.stored[csr.name]).requeue is Requeue.ON_CHANGE
    assert len(fixture.csrs.writes) == 1


def test_a_waiting_answer_whose_annotations_leave_no_room_gets_an_event() -> None:
    fixture = ReconcilerFixture(csrs=FakeCsrs(annotations_size=10))
    fixture.scenario.store.machines[HOME] = []
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    assert fixture.csrs.events == [(csr.name, "MachineNotFound")]


def test_an_answer_is_issued_when_its_machine_appears() -> None:
    fixture = ReconcilerFixture()
    late = fixture.scenario.store.machines.pop(HOME)
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    fixture.scenario.store.machines[HOME] = late
    assert fixture.result(csr).certificate is not None


def test_a_valid_answer_gets_a_certificate() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == DONE
    stored = fixture.csrs.stored[csr.name]
    assert stored.conditions["Approved"].reason == "Attested"
    assert stored.certificate is not None
    certificate = x509.load_pem_x509_certificate(stored.certificate)
    assert certificate.public_key() == fixture.scenario.kubelet_key.public_key()
    node = fixture.scenario.claim
    assert node.not_after == certificate.not_valid_after_utc
    assert fixture.csrs.writes == ["Approved Attested", "certify"]
    assert fixture.claims.writes[0].startswith("create key")
    [noted] = fixture.machines
    machine = fixture.scenario.machine
    assert (noted.namespace, noted.name, noted.uid) == (HOME.namespace, machine.name, machine.uid)
    assert (noted.attested, noted.reason) == (True, "Attested")


@pytest.mark.parametrize(("renewal", "calls"), [(False, 8), (True, 7)])
def test_a_join_takes_eight_api_calls_and_a_renewal_seven(*, renewal: bool, calls: int) -> None:
    """Offer: the challenge. Answer: list, K1 of a join, K2, K3, approval, claim, certificate."""
    fixture = ReconcilerFixture()
    if renewal:
        fixture.scenario.put_claim()
        fixture.scenario.as_node()
    for csr in (fixture.scenario.offer_csr(), fixture.scenario.answer_csr()):
        assert fixture.reconcile(fixture.file(csr)) == DONE
    csrs, claims = fixture.csrs, fixture.claims
    assert fixture.csrs.stored[csr.name].certificate is not None
    made = csrs.reads + csrs.writes + claims.reads + claims.writes
    assert len(made) + len(fixture.workload.requests) == calls


def test_the_certificate_that_is_released_is_recorded_in_the_claim(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="signer")
    fixture = of_a_node(KNOWN)
    csr = fixture.file(fixture.scenario.answer_csr())
    stored = fixture.result(csr)
    assert stored.certificate is not None
    der = x509.load_pem_x509_certificate(stored.certificate).public_bytes(Encoding.DER)
    node = fixture.scenario.claim
    assert node.credential_ids == (KNOWN, credential_id(der))
    (record,) = [r for r in caplog.records if r.getMessage() == "verdict"]
    fields = vars(record)["fields"]
    assert fields["requesterCredential"] == KNOWN
    assert fields["issuedCredential"] == credential_id(der)


def test_an_offer_filed_with_a_copied_key_raises_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who copied only the key of a node gets no further than an offer."""
    fixture = of_a_node(COPIED)
    csr = fixture.file(fixture.scenario.offer_csr())
    for _ in range(2):
        assert fixture.reconcile(fixture.csrs.stored[csr.name]) == DONE
    (alarm,) = alarms(caplog)
    assert (alarm["outcome"], alarm["requesterCredential"]) == ("alarm", COPIED)
    (event,) = fixture.machines
    assert (event.reason, event.event_only) == ("RequesterCredentialUnknown", True)
    assert fixture.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]


def test_an_offer_with_the_nodes_certificate_raises_no_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = of_a_node(KNOWN)
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    assert (alarms(caplog), fixture.machines, fixture.claims.reads) == ([], [], [])


def test_an_offer_gets_its_challenge_while_its_certificate_cannot_be_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = of_a_node(COPIED)
    fixture.claims.unavailable = True
    assert fixture.reconcile(fixture.file(fixture.scenario.offer_csr())) == DONE
    assert fixture.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]
    assert alarms(caplog) == []


def test_an_answer_with_an_unknown_certificate_raises_an_alarm_and_is_issued(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = of_a_node(COPIED)
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.result(csr).certificate is not None
    assert [alarm["outcome"] for alarm in alarms(caplog)] == ["alarm"]
    assert [m.reason for m in fixture.machines] == ["RequesterCredentialUnknown", "Attested"]
    assert fixture.csrs.events == [(csr.name, "RequesterCredentialUnknown")]


def test_an_answer_with_an_unknown_certificate_is_denied_by_policy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = of_a_node(COPIED, UnknownCredential.DENY)
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reason(csr) == "Denied RequesterCredentialUnknown"
    assert [alarm["outcome"] for alarm in alarms(caplog)] == ["denied"]
    assert [m.event_only for m in fixture.machines] == [False, True]
    assert fixture.scenario.claim.credential_ids == (KNOWN,)


def test_the_audit_record_of_a_certificate_says_what_was_attested(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Operators search it afterwards."""
    caplog.set_level(logging.INFO, logger="signer")
    fixture = ReconcilerFixture()
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    (record,) = [r for r in caplog.records if r.getMessage() == "verdict"]
    fields = vars(record)["fields"]
    node = fixture.scenario.claim
    assert node.boot is not None
    assert fields["outcome"] == "issued"
    assert (fields["node"], fields["machine"]) == (NODE, fixture.scenario.machine.name)
    assert (fields["endorsementKey"], fields["basis"]) == (
        key_name(fixture.scenario.ek),
        "Registered",
    )
    assert (fields["resetCount"], fields["restartCount"]) == (5, 6)
    assert (node.boot.reset_count, node.boot.restart_count) == (5, 6)
    assert fields["firmwareVersion"] == node.boot.firmware_version
    quoted = fixture.scenario.pcrs["sha256"]
    assert fields["pcrs"] == {"sha256": {str(index): v.hex() for index, v in quoted.items()}}
    assert fields["notAfter"] == node.not_after.isoformat()


def test_value_that_a_policy_only_warns_about_is_logged_counted_and_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="signer")
    fixture = ReconcilerFixture()
    policy = fixture.scenario.policy
    fixture.scenario.policy = replace(
        policy, pcrs=replace(policy.pcrs, mode=PcrMode.WARN, allowed={"sha256": {}})
    )
    csr = fixture.file(fixture.scenario.answer_csr())
    before = fixture.count_of("alarm", "PcrPolicyMismatch")
    assert fixture.reconcile(csr) == DONE
    assert fixture.csrs.stored[csr.name].certificate is not None
    alarm, issued = [r for r in caplog.records if r.getMessage() == "verdict"]
    fields = vars(alarm)["fields"]
    assert (alarm.levelname, fields["alarm"], fields["outcome"]) == ("WARNING", True, "alarm")
    assert (fields["reason"], fields["check"]) == ("PcrPolicyMismatch", "Q4")
    assert fields["detail"].startswith("sha256:0 is ")
    fields = vars(issued)["fields"]
    assert (fields["outcome"], fields["alarms"]) == ("issued", ["PcrPolicyMismatch"])
    assert fixture.csrs.events == [(csr.name, "PcrPolicyMismatch")]
    assert fixture.count_of("alarm", "PcrPolicyMismatch") == before + 1


def test_claims_are_written_before_the_approval() -> None:
    """`notAfter` is written first, or a name could be free while a certificate is valid.

    A failure of the API server mostly ends by itself, so it is no reason on the request.
    """
    fixture = ReconcilerFixture()
    fixture.claims.unavailable = True
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.stored[csr.name] == csr
    assert fixture.csrs.events == []


def other_exchanges_of_the_node(fixture: ReconcilerFixture) -> None:
    """Another exchange recorded a later certificate, with which the node has renewed since."""
    later = (credential_id(b"later"), credential_id(b"renewed"))
    fixture.scenario.change_claim(credential_ids=later)


def other_key(fixture: ReconcilerFixture) -> None:
    """Let a registered key take the name."""
    fixture.scenario.put_claim(endorsement_key())


def other_hardware(fixture: ReconcilerFixture) -> None:
    """Make the node's Machine again elsewhere."""
    fixture.scenario.put_claim(provider_id="metal://rack-2/slot-2")


def deleted_claim(fixture: ReconcilerFixture) -> None:
    fixture.scenario.store.nodes.clear()


@pytest.mark.parametrize("read_again", [False, True])
@pytest.mark.parametrize(
    "change", [other_exchanges_of_the_node, other_key, other_hardware, deleted_claim]
)
def test_certificate_is_not_released_after_its_claim_has_changed(
    change: Callable[[ReconcilerFixture], None], *, read_again: bool
) -> None:
    """A slow signer released a certificate that `credentialIDs` did not name any more."""
    fixture = of_a_node(KNOWN)
    fixture.csrs.interrupt = lambda: change(fixture)
    csr = fixture.file(fixture.scenario.answer_csr())
    cached = replace(csr, resource_version="0") if read_again else csr
    assert fixture.reconcile(cached) == RETRY
    stored = fixture.csrs.stored[csr.name]
    assert (list(stored.conditions), stored.certificate) == (["Approved"], None)


@pytest.mark.parametrize("reaction", UnknownCredential)
def test_node_with_two_exchanges_gets_no_certificate_that_its_claim_does_not_name(
    reaction: UnknownCredential,
) -> None:
    """The answer that stopped is verified again: K4 says whether it still gets a certificate."""
    fixture = of_a_node(KNOWN, reaction)
    fixture.csrs.interrupt = lambda: other_exchanges_of_the_node(fixture)
    stored = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    if reaction is UnknownCredential.DENY:
        assert stored.certificate is None
        assert stored.conditions["Failed"].reason == "RequesterCredentialUnknown"
    else:
        assert stored.certificate is not None
        der = x509.load_pem_x509_certificate(stored.certificate).public_bytes(Encoding.DER)
        assert credential_id(der) in fixture.scenario.claim.credential_ids


def test_a_missing_authority_is_a_reason_on_the_request() -> None:
    """The node said "no word from the signer", and the reason was in the signer's log alone."""
    fixture = ReconcilerFixture(authorities=Authorities(away=True))
    csr = fixture.file(fixture.scenario.answer_csr())
    for _ in range(2):
        assert fixture.reconcile(fixture.csrs.stored[csr.name]) == RETRY
    assert fixture.claims.writes == [], "nothing is claimed for a certificate that cannot be issued"
    reason = fixture.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert reason.startswith("AuthorityUnavailable: ")
    assert fixture.csrs.events == [(csr.name, "AuthorityUnavailable")]
    assert len(fixture.csrs.writes) == 1
    assert fixture.authority_failures, "the Cluster is reported as not served within seconds"
    fixture.authorities.away = False
    stored = fixture.result(fixture.csrs.stored[csr.name])
    assert stored.certificate is not None
    assert PENDING_REASON_ANNOTATION not in stored.annotations


def test_the_reason_of_a_wait_is_removed_when_it_is_over() -> None:
    fixture = ReconcilerFixture()
    late = fixture.scenario.store.machines.pop(HOME)
    offer = fixture.file(fixture.scenario.offer_csr())
    fixture.reconcile(offer)
    fixture.scenario.store.machines[HOME] = late
    assert fixture.reconcile(fixture.csrs.stored[offer.name]) == DONE
    annotations = fixture.csrs.stored[offer.name].annotations
    assert annotations.keys() == {CHALLENGE_ANNOTATION}
    assert len(fixture.csrs.writes) == 2


def test_the_reason_of_a_wait_is_removed_from_a_request_with_a_challenge() -> None:
    fixture = ReconcilerFixture()
    offer = fixture.file(fixture.scenario.offer_csr())
    fixture.reconcile(offer)
    stored = fixture.csrs.stored[offer.name]
    stale = {**stored.annotations, PENDING_REASON_ANNOTATION: "PolicyConflict: over"}
    fixture.file(replace(stored, annotations=stale))
    assert fixture.reconcile(fixture.csrs.stored[offer.name]) == DONE
    assert fixture.csrs.stored[offer.name].annotations == stored.annotations


def test_a_denied_request_has_no_reason_of_an_earlier_wait() -> None:
    fixture = ReconcilerFixture()
    wrong = fixture.scenario.answer_csr(name="another-name")
    csr = fixture.file(replace(wrong, annotations={PENDING_REASON_ANNOTATION: "any: reason"}))
    assert fixture.reason(csr) == "Denied AnswerNotBound"
    assert fixture.csrs.stored[csr.name].annotations == {}


def test_the_reason_why_a_machine_waits_is_noted() -> None:
    fixture = ReconcilerFixture()
    machine = replace(fixture.scenario.machine, bootstrap_ready=False)
    fixture.scenario.store.machines[HOME] = [machine]
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    [noted] = fixture.machines
    assert (noted.uid, noted.attested, noted.reason) == (machine.uid, False, "BootstrapNotReady")


def test_a_requester_that_is_not_allowed_reports_nothing_to_a_machine() -> None:
    """Anyone may name any provider ID."""
    fixture = ReconcilerFixture()
    csr = replace(fixture.scenario.offer_csr(), username="mallory", groups=frozenset())
    assert fixture.reason(fixture.file(csr)) == "Denied RequesterNotAllowed"
    assert fixture.machines == []


def test_a_verdict_does_not_depend_on_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ApiServerUnavailable("away")

    monkeypatch.setattr(FakeCsrs, "record_event", fails)
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr(name="another-name"))
    assert fixture.reason(csr) == "Denied AnswerNotBound"


def test_an_invalid_answer_is_denied_without_other_calls() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.provider_id = PROVIDER_ID
    wrong = fixture.scenario.answer_csr(name="another-name")
    csr = fixture.file(wrong)
    assert fixture.reason(csr) == "Denied AnswerNotBound"
    assert (fixture.authorities.calls, fixture.claims.writes) == (0, [])
    assert fixture.csrs.events == [(csr.name, "AnswerNotBound")]


def test_a_valid_answer_that_is_approved_already_is_issued() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr(conditions={"Approved": APPROVED}))
    assert fixture.result(csr).certificate is not None
    assert fixture.csrs.writes == ["certify"]


def test_an_approved_offer_is_only_challenged() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.offer_csr(conditions={"Approved": APPROVED}))
    assert fixture.result(csr).certificate is None
    assert fixture.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]


def test_a_key_that_the_rate_limit_hid_is_found_by_the_next_reconciliation() -> None:
    """The Secret is read before the key of an answer counts as unknown, at a limited rate."""
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.keys.known = fixture.keys.live = ChallengeKeys(current=sha256(b"old"), previous=None)
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    fixture.keys.live = fixture.scenario.challenge_keys
    assert fixture.reconcile(csr) == DONE
    assert fixture.csrs.stored[csr.name].certificate is not None


def test_an_unknown_version_without_room_for_annotations_is_denied() -> None:
    fixture = ReconcilerFixture(csrs=FakeCsrs(annotations_size=10))
    csr = fixture.file(of_version_9(fixture.scenario.answer_csr()))
    assert fixture.reason(csr) == "Denied UnsupportedVersion"


@pytest.mark.parametrize(
    ("writes_to", "write"), [("csrs", 1), ("csrs", 2), ("claims", 1), ("claims", 2), ("claims", 3)]
)
def test_next_reconciliation_completes_what_a_killed_signer_began(
    caplog: pytest.LogCaptureFixture, writes_to: str, write: int
) -> None:
    """The audit record of a certificate is written after the certificate."""
    caplog.set_level("INFO")

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    store = fixture.csrs if writes_to == "csrs" else fixture.claims
    store.interrupt, store.interrupt_before = die, write
    with pytest.raises(Killed):
        fixture.reconcile(csr)
    assert outcomes(caplog) == []
    assert fixture.result(csr).certificate is not None
    assert outcomes(caplog) == [("issued", "")]


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("check", ["I1", "K1"])
def test_request_that_the_management_cluster_forbids_is_an_alarm_that_names_the_rule(
    check: str, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A signer of one namespace may lack what is asked about all: it was tried again silently."""
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    error = ApiServerUnavailable("refused", detail='cannot list resource "attestednodes"')
    error.status = status
    place, method = {
        "I1": (Authorities, "authority"),
        "K1": (FakeClaimStore, "create_endorsement_key"),
    }[check]
    monkeypatch.setattr(place, method, Mock(side_effect=error))
    caplog.set_level(logging.INFO, logger="signer")
    assert fixture.reconcile(csr) == RETRY
    [line] = [vars(record)["fields"] for record in caplog.records]
    is_missing = status == 403
    assert line["reason"] == ("PermissionMissing" if is_missing else "ApiServerUnavailable")
    assert line["detail"] == error.detail
    assert line.get("alarm", False) is is_missing
    annotation = fixture.csrs.stored[csr.name].annotations.get(PENDING_REASON_ANNOTATION, "")
    assert annotation.startswith("PermissionMissing: ") is is_missing


@pytest.mark.parametrize("write", [1, 2])
def test_two_signers_at_once_issue_one_certificate(write: int) -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.csrs.interrupt = lambda: _done(fixture.reconcile(csr))
    fixture.csrs.interrupt_before = write
    assert fixture.reconcile(csr) == DONE
    first = fixture.csrs.stored[csr.name].certificate
    assert first is not None
    assert fixture.result(csr).certificate == first


def _done(result: Result) -> None:
    assert result == DONE


def test_two_signers_challenge_an_offer_once() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.offer_csr())
    fixture.csrs.interrupt = lambda: _done(fixture.reconcile(csr))
    assert fixture.reconcile(csr) == RETRY
    written = fixture.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION]
    assert fixture.result(csr).annotations[CHALLENGE_ANNOTATION] == written


def test_a_stale_cache_changes_no_issued_certificate() -> None:
    """The watch may not have delivered our own certificate yet."""
    fixture = ReconcilerFixture()
    stale = fixture.file(fixture.scenario.answer_csr())
    issued = fixture.result(stale)
    assert fixture.reconcile(stale) == DONE
    assert fixture.csrs.stored[stale.name] == issued


def test_an_answer_that_was_deleted_or_created_again_gets_no_verdict() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    again = fixture.file(replace(csr, uid="another"))
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.stored == {csr.name: again}
    del fixture.csrs.stored[csr.name]
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.stored == {}


def test_a_request_that_was_denied_meanwhile_gets_no_verdict() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    denied = Condition(type="Denied", reason="ByHand", message="no")
    settled = fixture.file(replace(csr, conditions={"Denied": denied}))
    assert fixture.reconcile(csr) == DONE
    assert fixture.csrs.stored == {csr.name: settled}


def test_an_answer_that_changed_meanwhile_is_read_again_and_certified() -> None:
    """Anyone who may annotate CSRs changes the resourceVersion that the cache has."""
    fixture = ReconcilerFixture()
    stale = fixture.file(fixture.scenario.answer_csr())
    fixture.file(replace(stale, annotations={"a": "b"}))
    assert fixture.reconcile(stale) == DONE
    assert fixture.csrs.stored[stale.name].certificate is not None
    assert fixture.csrs.writes == ["Approved Attested", "Approved Attested", "certify"]


def test_no_verdict_while_the_caches_are_not_filled() -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.offer_csr())
    fixture.scenario.inventory.filled = False
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.writes == []


def test_a_bug_is_retried_and_is_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: int) -> bytes:
        raise RuntimeError("a bug")

    fixture = ReconcilerFixture(random=broken)
    csr = fixture.file(fixture.scenario.offer_csr())
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.writes == []
    (record,) = [r for r in caplog.records if r.exc_info]
    assert record.message == "reconciliation failed"


@pytest.mark.parametrize(
    ("policies", "reason"),
    [
        (PolicySet(accepted=(Policy(name="a", clusters=ClusterSelector(cluster=ABROAD)),)), None),
        (PolicySet(accepted=(Policy(name="a"), Policy(name="b"))), "PolicyConflict"),
        (
            PolicySet(
                accepted=(), refused=(RefusedPolicy(name="a", clusters=None, problems=("p",)),)
            ),
            "PolicyInvalid",
        ),
    ],
    ids=["no policy", "two policies", "an invalid policy"],
)
def test_a_cluster_without_exactly_one_valid_policy_waits(
    policies: PolicySet, reason: str | None
) -> None:
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.offer_csr())
    source = FixedPolicies(policies=policies, anchors={"a": NO_ANCHORS, "b": NO_ANCHORS})
    dependencies = replace(fixture.dependencies(), policies=source)
    result = CsrReconciler(dependencies).reconcile(csr, fixture.cluster)
    assert result.requeue is Requeue.ON_CHANGE
    pending = fixture.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert pending.partition(":")[0] == (reason or "PolicyMissing")


@pytest.mark.parametrize(
    "mode", sorted(set(AutoApproveBindings) - {AutoApproveBindings.ALARM}, key=str)
)
def test_an_auto_approving_binding_makes_requests_wait(mode: AutoApproveBindings) -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.policy = replace(fixture.scenario.policy, auto_approve_bindings=mode)
    fixture.scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-x"}))
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == Result(requeue=Requeue.ON_CHANGE)
    reason = fixture.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert reason.startswith("AutoApproveBindingPresent: ")
    assert "kubeadm:node-autoapprove-x" not in reason


def test_a_node_name_is_reserved_until_its_certificate_expires() -> None:
    fixture = ReconcilerFixture()
    policy = replace(fixture.scenario.policy, name_reuse=NameReuse.AFTER_CERTIFICATE)
    fixture.scenario.policy = policy
    fixture.scenario.put_claim(endorsement_key(2), provider_id="metal://gone")
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    assert fixture.csrs.events == [(csr.name, "NodeNameReserved")]


@pytest.mark.parametrize("filed", ["offer_csr", "answer_csr"])
def test_the_endorsement_key_is_a_topic_of_a_waiting_request(filed: str) -> None:
    """A change of the key or of its holder changes neither Machine nor node name."""
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim(node_name="node-2.example", provider_id="metal://leaving")
    leaving = machine(provider_id="metal://leaving", deleting=True)
    fixture.scenario.store.machines[HOME].append(leaving)
    csr = fixture.file(getattr(fixture.scenario, filed)())
    result = fixture.reconcile(csr)
    reason = fixture.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert reason.startswith("EndorsementKeyHolderDeleting: ")
    keys = {key_name(fixture.scenario.ek), key_name(fixture.scenario.ak)}
    assert result.topics == {NODE, PROVIDER_ID, *keys}


def test_a_request_of_a_cluster_that_opted_out_stays_in_the_queue() -> None:
    """No event would bring it back: its caches stay open for a while."""
    fixture = ReconcilerFixture()
    fixture.scenario.change_cluster(client_signers=frozenset())
    csr = fixture.file(fixture.scenario.offer_csr())
    assert fixture.reconcile(csr) == Result(requeue=Requeue.ON_CHANGE)
    assert fixture.csrs.writes == []


def with_access_review(*allowed: str) -> ReconcilerFixture:
    """Return a reconciler whose policy requires that RBAC allows a certificate."""
    fixture = ReconcilerFixture(csrs=FakeCsrs(allowed=frozenset(allowed)))
    policy = replace(fixture.scenario.policy, access_review=AccessReview.REQUIRE)
    fixture.scenario.policy = policy
    return fixture


def test_access_review_is_asked_once_for_an_answer_and_never_for_an_offer() -> None:
    """An offer is not proved, and costs no request to an API server but its challenge."""
    fixture = with_access_review("nodeclient")
    for csr in (fixture.scenario.offer_csr(), fixture.scenario.answer_csr()):
        assert fixture.reconcile(fixture.file(csr)) == DONE
    assert fixture.csrs.stored[csr.name].certificate is not None
    assert fixture.csrs.reads == ["nodeclient"]


@pytest.mark.parametrize("serving", [False, True])
def test_requester_that_rbac_does_not_allow_waits_without_a_claim(*, serving: bool) -> None:
    fixture = with_access_review()
    if serving:
        fixture.scenario.put_claim()
    keys = dict(fixture.scenario.store.keys)
    made = builtin(fixture.scenario, NODE) if serving else fixture.scenario.answer_csr()
    csr = fixture.file(made)
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    stored = fixture.csrs.stored[csr.name]
    assert stored.annotations[PENDING_REASON_ANNOTATION].startswith("AccessNotAllowed: ")
    assert stored.conditions == {}
    assert fixture.scenario.store.keys == keys


def test_access_review_that_fails_is_neither_yes_nor_no() -> None:
    fixture = with_access_review()
    fixture.csrs.allowed = None
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == RETRY
    stored = fixture.csrs.stored[csr.name]
    assert stored.conditions == {}
    assert stored.annotations[PENDING_REASON_ANNOTATION].startswith("AccessReviewUnavailable: ")
    assert fixture.scenario.store.keys == {}


def without_approvals() -> ReconcilerFixture:
    """Return a reconciler whose policy disables approvals."""
    fixture = ReconcilerFixture()
    policy = replace(fixture.scenario.policy, approval=Approval.DISABLED)
    fixture.scenario.policy = policy
    return fixture


def withheld(fixture: ReconcilerFixture, csr: Csr) -> str:
    """Return the verdict that is shown on a CSR on which nothing was decided."""
    stored = fixture.csrs.stored[csr.name]
    assert (dict(stored.conditions), stored.certificate) == ({}, None)
    assert fixture.csrs.events == [(csr.name, "ApprovalDisabled")]
    reason, _, verdict = stored.annotations[PENDING_REASON_ANNOTATION].partition("; the request ")
    assert reason == "ApprovalDisabled: the policy disables approvals"
    return verdict


def outcomes(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return outcome and reason of each verdict in the log."""
    fields = [vars(r)["fields"] for r in caplog.records if r.getMessage() == "verdict"]
    return [(f["outcome"], f.get("reason", "")) for f in fields]


def test_answer_is_verified_but_gets_no_certificate_while_approvals_are_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="signer")
    fixture = without_approvals()
    offer, csr = (
        fixture.file(f) for f in (fixture.scenario.offer_csr(), fixture.scenario.answer_csr())
    )
    assert fixture.reconcile(offer) == DONE
    assert CHALLENGE_ANNOTATION in fixture.csrs.stored[offer.name].annotations
    assert fixture.reconcile(csr) == DONE
    assert withheld(fixture, csr) == "would get a certificate"
    assert fixture.scenario.store.keys == {}
    assert fixture.machines == []
    assert outcomes(caplog) == [("challenged", ""), ("would-issue", "")]


def test_denial_is_reported_once_while_approvals_are_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="signer")
    fixture = without_approvals()
    fixture.scenario.change_machine(deleting=True)
    csr = fixture.file(fixture.scenario.answer_csr())
    for _ in range(2):
        result = fixture.reconcile(fixture.csrs.stored[csr.name])
        assert result.requeue is Requeue.ON_CHANGE
    verdict = withheld(fixture, csr)
    assert verdict == "would be denied: MachineDeleting: the Machine is being deleted"
    assert outcomes(caplog) == [("would-deny", "MachineDeleting")]
    assert fixture.machines == []


def test_serving_request_is_approved_when_approvals_are_enabled_again() -> None:
    fixture = without_approvals()
    fixture.scenario.put_claim()
    csr = fixture.file(builtin(fixture.scenario, NODE))
    result = fixture.reconcile(csr)
    assert (result.requeue, NODE in result.topics) == (Requeue.ON_CHANGE, True)
    assert withheld(fixture, csr) == "would be approved"
    fixture.scenario.policy = replace(fixture.scenario.policy, approval=Approval.ENABLED)
    assert fixture.reconcile(fixture.csrs.stored[csr.name]) == DONE
    stored = fixture.csrs.stored[csr.name]
    assert stored.conditions.keys() == {"Approved"}
    assert PENDING_REASON_ANNOTATION not in stored.annotations


def test_kubelet_serving_of_any_age_is_approved_and_not_signed() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()
    csr = builtin(fixture.scenario, NODE)
    csr = fixture.file(replace(csr, created=fixture.scenario.now - timedelta(hours=3)))
    assert fixture.reconcile(csr) == DONE
    stored = fixture.csrs.stored[csr.name]
    assert (stored.conditions["Approved"].reason, stored.certificate) == ("Attested", None)
    assert fixture.reconcile(stored) == DONE
    assert fixture.csrs.writes == ["Approved Attested"]


def test_kubelet_serving_for_another_name_waits_with_an_event() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()
    csr = fixture.file(builtin(fixture.scenario, "node-2.example"))
    assert fixture.reconcile(csr).requeue is Requeue.ON_CHANGE
    assert fixture.csrs.events == [(csr.name, "AddressNotOfMachine")]


def test_unavailable_is_neither_yes_nor_no() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()

    def away() -> None:
        raise ApiServerUnavailable("away")

    fixture.csrs.interrupt = away
    csr = fixture.file(builtin(fixture.scenario, NODE))
    assert fixture.reconcile(csr) == RETRY


def test_annotations_of_255_kib_are_denied_at_once() -> None:
    """A waiting request with such annotations held the memory of 60 honest ones for a day."""
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()
    csr = builtin(fixture.scenario, "198.51.100.7")
    csr = fixture.file(replace(csr, annotations_size=255 * 1024))
    assert fixture.reason(csr) == "Denied TooLarge"
    assert fixture.csrs.writes == ["Denied TooLarge"]


def test_a_requester_above_its_share_is_denied_until_its_requests_fit() -> None:
    """Root on one node filed a thousand requests that wait, and honest ones had no room."""
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()
    csr = fixture.file(builtin(fixture.scenario, "198.51.100.7"))
    flood = replace(csr, request=bytes(MAX_BYTES_OF_NODE))
    fixture.shares.update(None, flood)
    assert fixture.reason(csr) == "Denied TooManyPendingRequests"
    another = replace(fixture.scenario.offer_csr(), username="system:bootstrap:fedcba")
    assert fixture.reconcile(fixture.file(another)) == DONE
    fixture.shares.update(flood, None)
    again = fixture.file(replace(csr, name="csr-again"))
    assert fixture.reconcile(again).requeue is Requeue.ON_CHANGE


@pytest.mark.parametrize(("minutes", "denied"), [(19, False), (21, True)])
def test_kubelet_serving_that_waited_longer_than_the_kubelet_is_denied(
    minutes: int,
    denied: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """Kubernetes deletes a pending request only after 24 hours."""
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim()
    csr = builtin(fixture.scenario, "198.51.100.7")
    csr = fixture.file(replace(csr, created=fixture.scenario.now - timedelta(minutes=minutes)))
    conditions = fixture.result(csr).conditions
    assert [c.reason for c in conditions.values()] == ["ServingRequestExpired"] * denied


@pytest.mark.parametrize(("minutes", "reason"), [(19, None), (21, "OfferExpired")])
def test_offer_that_its_node_has_discarded_gets_no_challenge(
    minutes: int, reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """After an outage the signer verified the offers of two days before those of use."""
    caplog.set_level(logging.DEBUG)
    fixture = ReconcilerFixture()
    filed = fixture.scenario.now - timedelta(minutes=minutes)
    csr = fixture.file(replace(fixture.scenario.offer_csr(), created=filed))
    assert fixture.reconcile(csr) == DONE
    [verdict] = [vars(r)["fields"] for r in caplog.records if r.message == "verdict"]
    assert verdict.get("reason") == reason
    assert verdict["outcome"] == ("challenged" if reason is None else "ignored")
    assert len(fixture.csrs.writes) == (reason is None)


def test_expired_offers_are_counted() -> None:
    """A clock that was 20 minutes ahead stopped all joins, and nothing showed it."""
    fixture = ReconcilerFixture()
    counter = VERDICTS.labels(str(HOME), "offer", "ignored", "OfferExpired", "")
    before = counter._value.get()
    filed = fixture.scenario.now - timedelta(minutes=21)
    fixture.reconcile(fixture.file(replace(fixture.scenario.offer_csr(), created=filed)))
    assert counter._value.get() == before + 1


def test_newer_offer_of_another_holder_of_the_token_does_not_end_an_offer() -> None:
    """A thief of a bootstrap token files an offer for the same node in every second."""
    fixture = ReconcilerFixture()
    now, offer = fixture.scenario.now, fixture.scenario.offer_csr()
    honest = fixture.file(replace(offer, created=now - timedelta(minutes=9)))
    fixture.file(replace(offer, name="csr-thief", uid="uid-thief", created=now))
    assert CHALLENGE_ANNOTATION in fixture.result(honest).annotations


def test_unregistered_key_of_an_offer_is_noted_for_operators() -> None:
    fixture = ReconcilerFixture()
    scenario = fixture.scenario
    scenario.change_machine(registered_keys=())
    fixture.reconcile(fixture.file(scenario.offer_csr()))
    [(name, key)] = fixture.offered_keys
    assert (name, key.sha256) == (scenario.machine.name, key_name(scenario.ek))
    assert (key.node_name, key.requester) == (NODE, scenario.username)


def refuse_for_another_key(scenario: Scenario) -> None:
    scenario.change_machine(registered_keys=(record_of(endorsement_key(2)),))


def use_the_token_of_another_machine(scenario: Scenario) -> None:
    scenario.change_machine(registered_keys=(), bootstrap_token_id="zyxwvu")


def be_a_pool_member(scenario: Scenario) -> None:
    scenario.change_machine(registered_keys=(), is_pool_member=True)


@pytest.mark.parametrize(
    "change", [refuse_for_another_key, use_the_token_of_another_machine, be_a_pool_member]
)
def test_key_that_no_operator_may_approve_is_not_noted(
    change: Callable[[Scenario], None],
) -> None:
    fixture = ReconcilerFixture()
    change(fixture.scenario)
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    assert fixture.offered_keys == []
