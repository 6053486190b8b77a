"""One CSR through the flow: what each verdict ends in, and that every step may be the last."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from types import MappingProxyType

import pytest
from cryptography import x509

from common.binding import challenge_key_id, sha256
from common.csr import decode_request, encode_request
from common.errors import ApiServerUnavailable
from common.evidence import decode_challenge
from common.names import (
    CHALLENGE_ANNOTATION,
    PEM_REQUEST,
    PENDING_REASON_ANNOTATION,
    SUPPORTED_VERSIONS_ANNOTATION,
)
from common.pem import encode_block
from signer.controller.reconcile import ClusterContext, Reconciler
from signer.controller.workqueue import DONE, RETRY, Requeue, Result
from signer.errors import AuthorityUnavailable, TooManyChallenges
from signer.issue.certificate import CertificateAuthority
from signer.model import ChallengeKeys, ClusterKey, Condition, Csr
from signer.policy import AutoApproveBindings, NameReuse, PolicySet
from signer.verify.recognize import CsrKind
from tests.builders.scenario import ABROAD, HOME, NODE, PROVIDER_ID, Scenario, key_name, machine
from tests.builders.software_tpm import endorsement_key
from tests.fakes.claims import FakeClaimStore
from tests.fakes.csrs import FakeCsrs
from tests.harness import pki

APPROVED = Condition(type="Approved", reason="ByHand", message="trust me")


@cache
def authority() -> CertificateAuthority:
    made = pki.Authority.make("workload", pki.ec_key())
    return CertificateAuthority(certificate=made.certificate, private_key=made.key)


@dataclass(slots=True)
class Keys:
    """Master keys: what is known, and what the Secret says when it is read."""

    known: ChallengeKeys
    live: ChallengeKeys
    reads: int = 0

    def cached(self) -> ChallengeKeys:
        return self.known

    def refresh(self) -> ChallengeKeys:
        self.reads += 1
        return self.live


@dataclass(slots=True)
class Authorities:
    """Authorities; away when told so."""

    away: bool = False
    asked: int = 0

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        assert cluster == HOME
        self.asked += 1
        if self.away:
            raise AuthorityUnavailable("no key")
        return authority()


@dataclass(slots=True)
class Rate:
    """Challenges left."""

    left: int = 100

    def acquire(self, requester: tuple[ClusterKey, str]) -> None:
        assert requester[0] == HOME
        if not self.left:
            raise TooManyChallenges("slow down")
        self.left -= 1


@dataclass(slots=True)
class ReconcilerFixture:
    """A reconciler at work on a scenario, where everything can be looked at."""

    scenario: Scenario = field(default_factory=Scenario)
    csrs: FakeCsrs = field(default_factory=FakeCsrs)
    claims: FakeClaimStore = field(init=False)
    keys: Keys = field(init=False)
    authorities: Authorities = field(default_factory=Authorities)
    rate: Rate = field(default_factory=Rate)
    random: Callable[[int], bytes] = field(default_factory=lambda: Random(7).randbytes)

    def __post_init__(self) -> None:
        self.scenario.now = datetime.now(self.scenario.now.tzinfo).replace(microsecond=0)
        self.claims = FakeClaimStore(store=self.scenario.store)
        self.keys = Keys(known=self.scenario.challenge_keys, live=self.scenario.challenge_keys)

    @property
    def side(self) -> ClusterContext:
        return ClusterContext(key=HOME, records=self.scenario.inventory, csrs=self.csrs)

    def reconciler(self) -> Reconciler:
        policy = self.scenario.policy
        return Reconciler(
            policies=PolicySet(by_cluster=MappingProxyType({}), default=policy),
            anchors={policy.name: self.scenario.anchors},
            claims=self.claims,
            challenge_keys=self.keys,
            authorities=self.authorities,
            rate_limiter=self.rate,
            now=lambda: self.scenario.now,
            monotonic=lambda: 0.0,
            random=self.random,
        )

    def look(self, csr: Csr) -> Result:
        """Look at a CSR as the cache has it."""
        return self.reconciler().reconcile(csr, self.side)

    def file(self, csr: Csr) -> Csr:
        """File a CSR as a requester does."""
        return self.csrs.put(csr)

    def result(self, csr: Csr) -> Csr:
        """Look until nothing is left to do, or nothing can be done now; return the CSR."""
        look = RETRY
        for _ in range(5):
            look = self.look(self.csrs.stored[csr.name])
            if look != RETRY:
                break
        return self.csrs.stored[csr.name]

    def reason(self, csr: Csr) -> str:
        """Look, and return the reason of the denial, or of the failure."""
        conditions = self.result(csr).conditions
        (refusal,) = [c for kind, c in conditions.items() if kind != "Approved"]
        return f"{refusal.type} {refusal.reason}"


def builtin(scenario: Scenario, *names: str) -> Csr:
    scenario.for_serving(*names)
    scenario.kind = CsrKind.BUILTIN_SERVING
    block = encode_block(PEM_REQUEST, scenario.pkcs10())
    return scenario.csr(block, name="csr-builtin")


def of_version_9(csr: Csr) -> Csr:
    """Return a CSR as a node of the future would file it."""
    der, data = decode_request(csr.request)
    later = data.replace(b'"version":"v1"', b'"version":"v9"')
    assert later != data
    return replace(csr, request=encode_request(der, later))


def test_an_offer_is_challenged_and_nothing_else() -> None:
    """An offer proves nothing: it may cost one annotation, and ask nobody (section 3)."""
    desk = ReconcilerFixture()
    desk.claims.unavailable = True
    desk.authorities.away = True
    csr = desk.file(desk.scenario.offer_csr())
    assert desk.look(csr) == DONE
    challenge = decode_challenge(desk.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION])
    assert challenge.key == challenge_key_id(desk.scenario.challenge_keys.current)
    assert desk.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]
    assert desk.csrs.events == []
    assert desk.scenario.store.keys == {}


def test_a_challenge_that_stands_is_left_alone() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.offer_csr())
    desk.look(csr)
    desk.rate.left = 0
    assert desk.look(desk.csrs.stored[csr.name]) == DONE
    assert len(desk.csrs.writes) == 1


def test_a_forged_challenge_is_written_over() -> None:
    """The requester may set any annotation when it files the offer."""
    desk = ReconcilerFixture()
    forged = desk.scenario.offer_csr(annotations={CHALLENGE_ANNOTATION: "{}"})
    csr = desk.file(forged)
    assert desk.look(csr) == DONE
    decode_challenge(desk.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION])


def foreign(desk: ReconcilerFixture) -> Csr:
    """Return an offer that another signer challenged under its own master key."""
    theirs = ChallengeKeys(current=sha256(b"theirs"), previous=None)
    desk.keys.known = desk.keys.live = theirs
    csr = desk.file(desk.scenario.offer_csr())
    desk.look(csr)
    desk.keys.known = desk.keys.live = desk.scenario.challenge_keys
    desk.csrs.writes.clear()
    return desk.csrs.stored[csr.name]


def test_another_signers_challenge_is_left_alone_for_a_minute() -> None:
    desk = ReconcilerFixture()
    csr = foreign(desk)
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert (desk.csrs.writes, desk.keys.reads) == ([], 1)
    desk.scenario.now += timedelta(seconds=61)
    assert desk.look(csr) == DONE
    assert len(desk.csrs.writes) == 1


def test_a_key_that_another_replica_rotated_is_read_before_it_is_foreign() -> None:
    desk = ReconcilerFixture()
    csr = foreign(desk)
    desk.keys.live = ChallengeKeys(current=sha256(b"theirs"), previous=None)
    assert desk.look(csr) == DONE
    assert desk.csrs.writes == []


def test_challenges_are_limited_in_rate() -> None:
    desk = ReconcilerFixture(rate=Rate(left=0))
    csr = desk.file(desk.scenario.offer_csr())
    assert desk.look(csr) == RETRY
    assert desk.csrs.writes == []


def test_annotations_without_room_deny_the_offer() -> None:
    desk = ReconcilerFixture()
    full = {"a": "x" * (256 * 1024 - 10)}
    csr = desk.file(desk.scenario.offer_csr(annotations=full))
    assert desk.reason(csr) == "Denied AnnotationsFull"


def test_annotations_without_room_deny_a_waiting_offer_too() -> None:
    desk = ReconcilerFixture()
    desk.scenario.store.machines[HOME] = []
    full = {"a": "x" * (256 * 1024 - 10)}
    csr = desk.file(desk.scenario.offer_csr(annotations=full))
    assert desk.reason(csr) == "Denied AnnotationsFull"


def test_a_waiting_offer_says_why_without_an_event() -> None:
    desk = ReconcilerFixture()
    desk.scenario.store.machines[HOME] = []
    csr = desk.file(desk.scenario.offer_csr())
    look = desk.look(csr)
    assert look == Result(requeue=Requeue.ON_CHANGE, topics=frozenset({NODE, PROVIDER_ID}))
    told = desk.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert told.startswith("MachineNotFound: ")
    assert desk.csrs.events == []


def test_the_same_reason_is_written_once() -> None:
    desk = ReconcilerFixture()
    desk.scenario.store.machines[HOME] = []
    csr = desk.file(desk.scenario.offer_csr())
    desk.look(csr)
    assert desk.look(desk.csrs.stored[csr.name]).requeue is Requeue.ON_CHANGE
    assert len(desk.csrs.writes) == 1


def test_a_waiting_answer_is_told_by_an_event() -> None:
    desk = ReconcilerFixture()
    desk.scenario.store.machines[HOME] = []
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert desk.csrs.events == [(csr.name, "MachineNotFound")]
    assert PENDING_REASON_ANNOTATION in desk.csrs.stored[csr.name].annotations


def test_a_waiting_answer_without_room_is_still_told() -> None:
    desk = ReconcilerFixture()
    desk.scenario.store.machines[HOME] = []
    full = {"a": "x" * (256 * 1024 - 10)}
    csr = desk.file(desk.scenario.answer_csr(annotations=full))
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert desk.csrs.events == [(csr.name, "MachineNotFound")]


def test_a_machine_that_comes_late_is_enough() -> None:
    desk = ReconcilerFixture()
    late = desk.scenario.store.machines.pop(HOME)
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    desk.scenario.store.machines[HOME] = late
    assert desk.result(csr).certificate is not None


def test_a_right_answer_gets_its_certificate() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr) == DONE
    found = desk.csrs.stored[csr.name]
    assert found.conditions["Approved"].reason == "Attested"
    assert found.certificate is not None
    certificate = x509.load_pem_x509_certificate(found.certificate)
    assert certificate.public_key() == desk.scenario.kubelet_key.public_key()
    node = desk.scenario.store.find_node(HOME, NODE)
    assert node is not None
    assert node.not_after == certificate.not_valid_after_utc
    assert desk.csrs.writes == ["Approved Attested", "certify"]
    assert desk.claims.writes[0].startswith("create key")


def test_the_record_of_a_certificate_tells_what_was_attested(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whose TPM it was, and what booted: what people look for afterwards, and learn from."""
    caplog.set_level(logging.INFO, logger="signer")
    desk = ReconcilerFixture()
    desk.look(desk.file(desk.scenario.answer_csr()))
    (record,) = [r for r in caplog.records if r.getMessage() == "verdict"]
    told = vars(record)["fields"]
    node = desk.scenario.store.find_node(HOME, NODE)
    assert node is not None
    assert node.boot is not None
    assert told["outcome"] == "issued"
    assert (told["node"], told["machine"]) == (NODE, desk.scenario.machine.name)
    assert (told["endorsementKey"], told["basis"]) == (key_name(desk.scenario.ek), "Record")
    assert (told["resetCount"], told["restartCount"]) == (5, 6)
    assert (node.boot.reset_count, node.boot.restart_count) == (5, 6)
    assert told["firmwareVersion"] == f"{node.boot.firmware_version:#018x}"
    quoted = desk.scenario.pcrs["sha256"]
    assert told["pcrs"] == {"sha256": {str(index): v.hex() for index, v in quoted.items()}}
    assert told["notAfter"] == node.not_after.isoformat()


def test_claims_are_made_before_anything_is_approved() -> None:
    """Whatever is issued is in `notAfter` first, or a name could be free while it lives."""
    desk = ReconcilerFixture()
    desk.claims.unavailable = True
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr) == RETRY
    assert desk.csrs.stored[csr.name] == csr


def test_without_an_authority_nothing_is_claimed() -> None:
    desk = ReconcilerFixture(authorities=Authorities(away=True))
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr) == RETRY
    assert (desk.csrs.writes, desk.claims.writes) == ([], [])


def test_a_wrong_answer_is_denied_and_asks_nobody() -> None:
    desk = ReconcilerFixture()
    desk.scenario.provider_id = PROVIDER_ID
    wrong = desk.scenario.answer_csr(name="another-name")
    csr = desk.file(wrong)
    assert desk.reason(csr) == "Denied AnswerNotBound"
    assert (desk.authorities.asked, desk.claims.writes, desk.csrs.events) == (0, [], [])


def test_approved_by_hand_is_no_input() -> None:
    """Whoever may approve may not issue: every check runs, and a no is Failed (section 3)."""
    desk = ReconcilerFixture()
    wrong = desk.scenario.answer_csr(name="another-name", conditions={"Approved": APPROVED})
    csr = desk.file(wrong)
    assert desk.reason(csr) == "Failed AnswerNotBound"
    assert desk.csrs.stored[csr.name].certificate is None


def test_approved_by_hand_and_right_is_issued() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr(conditions={"Approved": APPROVED}))
    assert desk.result(csr).certificate is not None
    assert desk.csrs.writes == ["certify"]


def test_approved_by_hand_and_too_old_is_failed() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr(conditions={"Approved": APPROVED}))
    desk.scenario.now += timedelta(minutes=16)
    assert desk.reason(csr) == "Failed AnswerExpired"


def test_an_approved_offer_is_only_challenged() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.offer_csr(conditions={"Approved": APPROVED}))
    assert desk.result(csr).certificate is None
    assert desk.csrs.writes == [f"annotate {CHALLENGE_ANNOTATION}"]


def test_an_answer_under_an_unknown_key_is_left_to_another_signer() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    other = ChallengeKeys(current=sha256(b"ours"), previous=None)
    desk.keys.known = desk.keys.live = other
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert (desk.csrs.writes, desk.csrs.events, desk.keys.reads) == ([], [], 1)


def test_a_key_that_was_too_new_for_the_last_reading_is_found_by_the_next_look() -> None:
    """Live readings are limited in rate: none that was left out may cost an answer."""
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.keys.known = desk.keys.live = ChallengeKeys(current=sha256(b"old"), previous=None)
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    desk.keys.live = desk.scenario.challenge_keys
    assert desk.look(csr) == DONE
    assert desk.csrs.stored[csr.name].certificate is not None


def test_an_unknown_key_is_not_believed_before_the_secret_was_read() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.keys.known = ChallengeKeys(current=sha256(b"old"), previous=None)
    assert desk.result(csr).certificate is not None


def test_an_unknown_version_is_told_what_is_spoken() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(of_version_9(desk.scenario.answer_csr()))
    assert desk.reason(csr) == "Denied UnsupportedVersion"
    assert desk.csrs.stored[csr.name].annotations[SUPPORTED_VERSIONS_ANNOTATION] == "v1"
    assert desk.csrs.writes[0] == f"annotate {SUPPORTED_VERSIONS_ANNOTATION}"


def test_an_unknown_version_without_room_is_denied_all_the_same() -> None:
    desk = ReconcilerFixture()
    full = {"a": "x" * (256 * 1024 - 10)}
    csr = desk.file(of_version_9(desk.scenario.answer_csr(annotations=full)))
    assert desk.reason(csr) == "Denied UnsupportedVersion"


@pytest.mark.parametrize("write", [1, 2])
def test_a_signer_that_dies_at_a_write_is_healed_by_the_next_look(write: int) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.csrs.interrupt, desk.csrs.interrupt_before = die, write
    with pytest.raises(Killed):
        desk.look(csr)
    assert desk.result(csr).certificate is not None


@pytest.mark.parametrize("write", range(1, 4))
def test_a_signer_that_dies_at_a_claim_is_healed_by_the_next_look(write: int) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.claims.interrupt, desk.claims.interrupt_before = die, write
    with pytest.raises(Killed):
        desk.look(csr)
    assert desk.result(csr).certificate is not None


@pytest.mark.parametrize("write", [1, 2])
def test_two_signers_at_once_are_harmless(write: int) -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.csrs.interrupt = lambda: _done(desk.look(csr))
    desk.csrs.interrupt_before = write
    assert desk.look(csr) == RETRY
    first = desk.csrs.stored[csr.name].certificate
    assert first is not None
    assert desk.result(csr).certificate == first


def _done(look: Result) -> None:
    assert look == DONE


def test_two_signers_challenge_an_offer_once() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.offer_csr())
    desk.csrs.interrupt = lambda: _done(desk.look(csr))
    assert desk.look(csr) == RETRY
    written = desk.csrs.stored[csr.name].annotations[CHALLENGE_ANNOTATION]
    assert desk.result(csr).annotations[CHALLENGE_ANNOTATION] == written


def test_a_cache_that_is_behind_changes_nothing() -> None:
    """The watch may not have brought our own certificate yet."""
    desk = ReconcilerFixture()
    behind = desk.file(desk.scenario.answer_csr())
    desk.result(behind)
    desk.csrs.writes.clear()
    assert desk.look(behind) == DONE
    assert desk.csrs.writes == []


def test_an_answer_that_was_deleted_or_made_anew_is_not_judged() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    desk.file(replace(csr, uid="another"))
    assert desk.look(csr) == RETRY
    del desk.csrs.stored[csr.name]
    assert desk.look(csr) == RETRY
    assert desk.csrs.writes == []


def test_a_request_that_was_denied_meanwhile_is_over() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.answer_csr())
    denied = Condition(type="Denied", reason="ByHand", message="no")
    desk.file(replace(csr, conditions={"Denied": denied}))
    assert desk.look(csr) == DONE
    assert desk.csrs.writes == []


def test_caches_that_are_not_filled_decide_nothing() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.offer_csr())
    desk.scenario.inventory.filled = False
    assert desk.look(csr) == RETRY
    assert desk.csrs.writes == []


def test_a_bug_is_no_verdict(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: int) -> bytes:
        raise RuntimeError("a bug")

    desk = ReconcilerFixture(random=broken)
    csr = desk.file(desk.scenario.offer_csr())
    assert desk.look(csr) == RETRY
    assert desk.csrs.writes == []
    (record,) = [r for r in caplog.records if r.exc_info]
    assert record.message == "look failed"


def test_a_cluster_without_a_policy_waits() -> None:
    desk = ReconcilerFixture()
    csr = desk.file(desk.scenario.offer_csr())
    policies = PolicySet(by_cluster=MappingProxyType({ABROAD: desk.scenario.policy}), default=None)
    look = replace(desk.reconciler(), policies=policies).reconcile(csr, desk.side)
    assert look.requeue is Requeue.ON_CHANGE
    told = desk.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert told.startswith("PolicyMissing: ")


@pytest.mark.parametrize("mode", [AutoApproveBindings.REMOVE, AutoApproveBindings.WAIT])
def test_an_auto_approving_binding_stops_everything(mode: AutoApproveBindings) -> None:
    desk = ReconcilerFixture()
    desk.scenario.policy = replace(desk.scenario.policy, auto_approve_bindings=mode)
    desk.scenario.change_cluster(auto_approve_bindings=frozenset({"kubeadm:node-autoapprove-x"}))
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr) == Result(requeue=Requeue.ON_CHANGE)
    told = desk.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert told.startswith("AutoApproveBindingPresent: ")
    assert "kubeadm:node-autoapprove-x" not in told


def test_another_cluster_is_not_told_of() -> None:
    """A reason that waits for another cluster's node must not name it."""
    desk = ReconcilerFixture()
    desk.scenario.put_claim(cluster=ABROAD, node_name="secret-node", provider_id="metal://theirs")
    desk.scenario.store.machines[ABROAD] = [machine(provider_id="metal://theirs", deleting=True)]
    csr = desk.file(desk.scenario.answer_csr())
    look = desk.look(csr)
    found = desk.csrs.stored[csr.name]
    assert look.requeue is Requeue.ON_CHANGE
    said = repr(found.annotations) + repr(found.conditions)
    assert "secret-node" not in said
    assert "theirs" not in said


def test_a_name_whose_certificate_lives_waits_by_policy() -> None:
    desk = ReconcilerFixture()
    policy = replace(desk.scenario.policy, name_reuse=NameReuse.AFTER_CERTIFICATE)
    desk.scenario.policy = policy
    desk.scenario.put_claim(endorsement_key(2), provider_id="metal://gone")
    csr = desk.file(desk.scenario.answer_csr())
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert desk.csrs.events == [(csr.name, "NodeNameReserved")]


@pytest.mark.parametrize("filed", ["offer_csr", "answer_csr"])
def test_a_wait_is_for_the_key_too(filed: str) -> None:
    """The key's object may change, and who holds it may go: neither touches Machine or name."""
    desk = ReconcilerFixture()
    desk.scenario.put_claim(node_name="node-2.example", provider_id="metal://leaving")
    leaving = machine(provider_id="metal://leaving", deleting=True)
    desk.scenario.store.machines[HOME].append(leaving)
    csr = desk.file(getattr(desk.scenario, filed)())
    look = desk.look(csr)
    told = desk.csrs.stored[csr.name].annotations[PENDING_REASON_ANNOTATION]
    assert told.startswith("EndorsementKeyHolderDeleting: ")
    assert look.topics == {NODE, PROVIDER_ID, key_name(desk.scenario.ek)}


def test_a_cluster_that_opts_out_may_opt_in_again() -> None:
    """As long as it is open, nobody files the request anew in the caches."""
    desk = ReconcilerFixture()
    desk.scenario.change_cluster(client_signers=frozenset())
    csr = desk.file(desk.scenario.offer_csr())
    assert desk.look(csr) == Result(requeue=Requeue.ON_CHANGE)
    assert desk.csrs.writes == []


def test_builtin_serving_is_approved_and_never_signed() -> None:
    desk = ReconcilerFixture()
    desk.scenario.put_claim()
    csr = desk.file(builtin(desk.scenario, NODE))
    assert desk.look(csr) == DONE
    found = desk.csrs.stored[csr.name]
    assert (found.conditions["Approved"].reason, found.certificate) == ("Attested", None)
    assert desk.look(found) == DONE
    assert desk.csrs.writes == ["Approved Attested"]


def test_builtin_serving_of_another_name_waits_with_an_event() -> None:
    desk = ReconcilerFixture()
    desk.scenario.put_claim()
    csr = desk.file(builtin(desk.scenario, "node-2.example"))
    assert desk.look(csr).requeue is Requeue.ON_CHANGE
    assert desk.csrs.events == [(csr.name, "AddressNotOfMachine")]


def test_unavailable_is_neither_yes_nor_no() -> None:
    desk = ReconcilerFixture()
    desk.scenario.put_claim()

    def away() -> None:
        raise ApiServerUnavailable("away")

    desk.csrs.interrupt = away
    csr = desk.file(builtin(desk.scenario, NODE))
    assert desk.look(csr) == RETRY
