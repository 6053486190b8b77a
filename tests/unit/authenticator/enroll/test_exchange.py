"""Whole exchanges in memory: what is sent, when they resume, and when they end."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from authenticator.enroll.exchange import (
    CHALLENGE_TTL_SECONDS,
    OFFER_TTL_SECONDS,
    QUIET_SECONDS,
    WATCH_TIMEOUT_SECONDS,
)
from authenticator.errors import (
    CertificateMismatch,
    CertificateNotAccepted,
    ClockSkewTooLarge,
    CoolingDown,
    CredentialNotForThisTpm,
    DeadlinePassed,
    ExchangeExpired,
    OfferUnanswered,
    RequestDeleted,
    RequestDenied,
    RequestFailed,
    RequestNameConflict,
    Unauthorized,
    VersionRefused,
)
from authenticator.model import EXCHANGE_TTL_SECONDS, CsrRequest, Token
from authenticator.state.cooldown import MAX_REFUSAL_COOLDOWN_SECONDS
from authenticator.tpm.templates import ATTESTATION_TEMPLATES
from common.challenge import decode_challenge, encode_challenge
from common.errors import ApiServerUnavailable, AttestationError
from common.names import CHALLENGE_ANNOTATION
from common.node_identity import attested_group
from common.requests.csr import decode_request
from common.requests.pkcs10 import parse_pkcs10
from common.tpm.constants import ObjectAttributes
from tests.fakes.csr_api import GROUP, SERVER_AUTH, FakeWorkload, Issuance
from tests.fakes.node import BUDGET_SECONDS, NODE_NAME, CrashInjector, FakeNode, SimulatedCrash


def moments_of_a_join() -> int:
    """Count the moments at which a process can be killed in an exchange."""
    node = FakeNode()
    node.obtain()
    return node.crash_injector.seen


def filed(node: FakeNode) -> list[str]:
    return list(node.cluster.csrs)


def test_limits_are_those_of_the_protocol() -> None:
    limits = (EXCHANGE_TTL_SECONDS, OFFER_TTL_SECONDS, CHALLENGE_TTL_SECONDS)
    assert limits == (15 * 60, 10 * 60, 4 * 60)
    assert WATCH_TIMEOUT_SECONDS <= 60, "a pending CSR is read at least every minute"


def test_join_files_one_offer_and_one_answer_and_ends_in_a_certificate() -> None:
    node = FakeNode()
    credential = node.obtain()
    offer, answer = node.cluster.csrs.values()
    assert offer.spec.name == f"kubelet-tpm-offer-{1:032x}"
    assert answer.spec.name == f"kubelet-tpm-answer-{2:032x}"
    assert offer.spec.usages == ("client auth", "digital signature")
    assert decode_request(offer.spec.request)[0] == decode_request(answer.spec.request)[0]
    request = parse_pkcs10(decode_request(offer.spec.request)[0])
    assert (request.node_name, request.provider_id) == (NODE_NAME, "test:///1")
    assert credential.key_pair.certificate == answer.certificate
    assert node.store.credential == credential
    assert node.store.pending is None


def test_each_offer_has_another_key() -> None:
    node = FakeNode()
    first = node.obtain()
    node.store.credential = None
    assert node.obtain().key_pair.key != first.key_pair.key


def test_lifetime_is_requested_and_bound() -> None:
    node = FakeNode(settings={"expirationSeconds": 3600})
    node.obtain()
    assert {csr.spec.expiration_seconds for csr in node.cluster.csrs.values()} == {3600}


@pytest.mark.parametrize(("requested", "sent"), [(True, b"log"), (False, None)])
def test_event_log_is_sent_when_it_is_requested(*, requested: bool, sent: bytes | None) -> None:
    node = FakeNode(log=b"log")
    node.cluster.event_log = requested
    node.obtain()
    assert node.cluster.answers[0].event_log == sent


@pytest.mark.parametrize(("requested", "sent"), [(True, b"{}"), (False, None)])
def test_signatures_of_the_boot_image_are_sent_when_they_are_requested(
    *, requested: bool, sent: bytes | None
) -> None:
    node = FakeNode(pcr_signatures=b"{}")
    node.cluster.pcr_signatures = requested
    node.obtain()
    assert node.cluster.answers[0].pcr_signatures == sent


def test_phases_are_recorded() -> None:
    node = FakeNode()
    node.obtain()
    phases = node.report.record("done")["phases"]
    assert isinstance(phases, list)
    assert [p["name"] for p in phases] == ["offer", "challenge", "answer", "certificate", "trial"]


@pytest.mark.parametrize("moment", range(1, moments_of_a_join() + 1))
def test_exchange_is_resumed_after_a_kill_at_any_moment(moment: int) -> None:
    node = FakeNode(crash_injector=CrashInjector(moment=moment))
    with pytest.raises(SimulatedCrash):
        node.obtain()
    kept = node.store.credential
    node.crash_injector.moment = None
    node.store.is_locked = False
    credential = node.obtain()
    assert len(node.cluster.csrs) == 2, (
        "the names of its CSRs show that the same exchange was resumed"
    )
    assert kept in {None, credential}, "a cached certificate is not requested again"
    assert node.store.credential == credential


@pytest.mark.parametrize("moment", range(1, moments_of_a_join() + 1))
def test_kill_and_reboot_at_any_moment_ends_in_a_certificate(moment: int) -> None:
    node = FakeNode(crash_injector=CrashInjector(moment=moment))
    with pytest.raises(SimulatedCrash):
        node.obtain()
    node.crash_injector.moment = None
    node.clock.reboot()
    assert node.obtain() == node.store.credential
    assert node.store.pending is None or node.store.pending.key == node.obtain().key_pair.key


def test_exchange_is_on_disk_before_anything_is_sent() -> None:
    node = FakeNode()
    node.cluster.errors = [Unauthorized("stop here")]
    with pytest.raises(Unauthorized):
        node.obtain()
    assert node.cluster.csrs == {}
    assert node.store.pending is not None


def pending_after(node: FakeNode, seconds: float) -> FakeNode:
    """Return a node with a pending offer and no answer, after some time."""
    node.cluster.signer_is_away = True
    with pytest.raises(DeadlinePassed):
        node.obtain()
    node.clock.pass_time(seconds)
    node.cluster.signer_is_away = False
    return node


def offers_of_a_day_without_a_signer(node: FakeNode, seconds: float) -> int:
    """Count the offers of a node that makes one call a minute at most, each with this budget."""
    node.cluster.signer_is_away = True
    end = node.clock.boottime() + 24 * 3600
    while node.clock.boottime() < end:
        before = node.clock.boottime()
        with pytest.raises((DeadlinePassed, OfferUnanswered, CoolingDown)):
            node.obtain(seconds=seconds)
        node.clock.pass_time(max(1, before + 60 - node.clock.boottime()))
    return len(filed(node))


@pytest.mark.parametrize("seconds", [BUDGET_SECONDS, EXCHANGE_TTL_SECONDS])
def test_node_without_a_signer_files_135_offers_a_day(seconds: float) -> None:
    """Issue 11, point 32: each due node did so while the signer was unavailable."""
    assert 30 < offers_of_a_day_without_a_signer(FakeNode(), seconds) < 60


def test_offer_unanswered_for_ten_minutes_is_replaced_after_a_pause() -> None:
    node = pending_after(FakeNode(), OFFER_TTL_SECONDS)
    with pytest.raises(OfferUnanswered):
        node.obtain()
    with pytest.raises(CoolingDown, match="OfferUnanswered"):
        node.obtain()
    node.clock.pass_time(2)
    node.obtain()
    assert len(filed(node)) == 3


def test_expired_offer_without_a_waiting_call_is_replaced_at_once() -> None:
    """The missing challenge does not show that the signer is unavailable."""
    node = pending_after(FakeNode(), EXCHANGE_TTL_SECONDS)
    node.obtain()
    assert len(filed(node)) == 3


def test_challenge_is_accepted_until_its_offer_is_ten_minutes_old() -> None:
    """The signer may come back between two calls."""
    node = pending_after(FakeNode(), OFFER_TTL_SECONDS - BUDGET_SECONDS)
    node.cluster.reconcile()
    node.obtain()
    assert len(filed(node)) == 2


def test_challenge_for_an_offer_over_ten_minutes_old_is_refused() -> None:
    node = pending_after(FakeNode(), OFFER_TTL_SECONDS + 1 - BUDGET_SECONDS)
    node.cluster.reconcile()
    with pytest.raises(OfferUnanswered):
        node.obtain()


@pytest.mark.parametrize(
    ("age", "in_all"), [(EXCHANGE_TTL_SECONDS, 2), (EXCHANGE_TTL_SECONDS + 1, 4)]
)
def test_key_is_discarded_after_fifteen_minutes_although_its_certificate_exists(
    age: float, in_all: int
) -> None:
    node = FakeNode()
    node.cluster.wait["answer"] = "MachineNotFound"
    with pytest.raises(DeadlinePassed):
        node.obtain()
    del node.cluster.wait["answer"]
    node.cluster.reconcile()
    node.clock.pass_time(age - BUDGET_SECONDS)
    node.obtain()
    assert len(filed(node)) == in_all


@pytest.mark.parametrize(
    ("waits_for", "seconds", "error"),
    [
        ("offer", OFFER_TTL_SECONDS, DeadlinePassed),
        ("offer", OFFER_TTL_SECONDS + WATCH_TIMEOUT_SECONDS, OfferUnanswered),
        ("answer", EXCHANGE_TTL_SECONDS, DeadlinePassed),
        ("answer", EXCHANGE_TTL_SECONDS + QUIET_SECONDS, ExchangeExpired),
    ],
)
def test_call_that_ends_with_its_exchange_starts_no_other_exchange(
    waits_for: str, seconds: float, error: type[AttestationError]
) -> None:
    node = FakeNode()
    node.cluster.wait[waits_for] = "MachineNotFound"
    with pytest.raises(error):
        node.obtain(seconds=seconds)
    assert len(filed(node)) == (1 if waits_for == "offer" else 2)


def test_watches_end_with_the_call() -> None:
    node = FakeNode()
    node.cluster.signer_is_away = True
    looks: list[float] = []
    node.cluster.on_wait = lambda: looks.append(node.clock.boottime())
    before = node.clock.boottime()
    with pytest.raises(DeadlinePassed):
        node.obtain(seconds=45)
    assert [look - before for look in looks] == [0, WATCH_TIMEOUT_SECONDS]
    assert node.clock.boottime() - before == 45


def test_deadline_error_names_the_pending_reason() -> None:
    node = FakeNode()
    node.cluster.wait["offer"] = "MachineNotFound"
    node.cluster.on_wait = lambda: node.cluster.errors.append(DeadlinePassed("no answer"))
    with pytest.raises(DeadlinePassed, match="MachineNotFound"):
        node.obtain()


CHANGES: dict[str, Callable[[FakeNode], object]] = {
    "boot": lambda node: node.clock.reboot(),
    "lifetime": lambda node: node.settings.update(expirationSeconds=3600),
    "provider ID": lambda node: node.settings.update(providerID="test:///2"),
    "node name": lambda node: node.settings.update(nodeName="worker-2.example"),
    "server": lambda node: setattr(node, "url", "https://another.example"),
    "requester": lambda node: setattr(node, "bootstrap", Token(token="other")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_exchange_is_replaced_when_its_input_changes(change: str) -> None:
    node = pending_after(FakeNode(), 0)
    node.cluster.tokens.add("other")
    CHANGES[change](node)
    node.obtain()
    assert len(filed(node)) == 3


def at_challenge(node: FakeNode) -> FakeNode:
    """Kill a node that has just received its challenge."""
    seen = node.store.save_pending

    def save(pending: object) -> None:
        seen(pending)  # type: ignore[arg-type]
        if node.store.pending is not None and node.store.pending.challenge is not None:
            raise SimulatedCrash

    node.store.save_pending = save  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        node.obtain()
    node.store.save_pending = seen  # type: ignore[method-assign]
    return node


def test_challenge_is_answered_within_four_minutes_of_its_receipt() -> None:
    node = at_challenge(FakeNode())
    node.clock.pass_time(CHALLENGE_TTL_SECONDS)
    node.obtain()
    assert len(filed(node)) == 2


def test_challenge_older_than_four_minutes_is_discarded_and_not_opened() -> None:
    node = at_challenge(FakeNode())
    node.clock.pass_time(CHALLENGE_TTL_SECONDS + 1)
    opened: list[bytes] = []
    activate = node.tpm.activate_credential

    def watched(credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        opened.append(credential_blob)
        return activate(credential_blob, encrypted_secret)

    node.tpm.activate_credential = watched  # type: ignore[method-assign]
    node.obtain()
    assert len(filed(node)) == 3, "the first offer, then another offer and its answer"
    assert len(opened) == 1, "only the challenge of the next exchange"


def before_the_answer_arrives(node: FakeNode) -> FakeNode:
    """Kill a node whose answer is on disk, but not in the API server."""
    lost = node.cluster.called

    def lose_the_answer(method: str) -> None:
        lost(method)
        if method == "create" and len(node.cluster.csrs) == 1:
            raise SimulatedCrash

    node.cluster.called = lose_the_answer  # type: ignore[method-assign]
    with pytest.raises(SimulatedCrash):
        node.obtain()
    node.cluster.called = lost  # type: ignore[method-assign]
    return node


def test_answer_on_disk_is_sent_again_unchanged() -> None:
    node = before_the_answer_arrives(FakeNode())
    assert node.store.pending is not None
    kept = node.store.pending.answer
    node.obtain()
    assert node.cluster.csrs[f"kubelet-tpm-answer-{2:032x}"].spec.request == kept


def test_answer_that_was_not_created_in_four_minutes_is_discarded() -> None:
    node = before_the_answer_arrives(FakeNode())
    node.clock.pass_time(CHALLENGE_TTL_SECONDS + 1)
    node.obtain()
    assert len(filed(node)) == 3, "the first offer, then another offer and its answer"


def test_answer_is_not_created_late_after_an_outage_during_one_call() -> None:
    """The call retried the creation until its own deadline, with a challenge of any age."""
    node = before_the_answer_arrives(FakeNode())
    outage = CHALLENGE_TTL_SECONDS + 1
    back = node.clock.boottime() + outage
    called = node.cluster.called

    def is_unavailable(method: str) -> None:
        called(method)
        if node.clock.boottime() < back:
            raise ApiServerUnavailable("gone")

    node.cluster.called = is_unavailable  # type: ignore[method-assign]
    node.obtain(seconds=EXCHANGE_TTL_SECONDS)
    assert len(filed(node)) == 3, "the first offer, then another offer and its answer"


def test_pending_answer_is_kept_over_calls_until_it_is_fifteen_minutes_old() -> None:
    node = FakeNode()
    node.cluster.wait["answer"] = "EndorsementKeyNotRegistered: no key is registered"
    with pytest.raises(DeadlinePassed, match="EndorsementKeyNotRegistered"):
        node.obtain()
    with pytest.raises(DeadlinePassed, match="EndorsementKeyNotRegistered"):
        node.obtain(seconds=EXCHANGE_TTL_SECONDS + 60)
    assert len(filed(node)) == 4, "a new exchange begins after fifteen minutes"
    assert node.store.pending is not None
    assert node.store.pending.answer_name == filed(node)[3]


def test_reason_of_a_wait_is_logged_once_and_early(caplog: pytest.LogCaptureFixture) -> None:
    """A node was silent for 60 seconds although the signer had written the reason."""
    node = FakeNode()
    node.cluster.wait["offer"] = "MachineNotFound: no Machine has the provider ID"
    with pytest.raises(DeadlinePassed):
        node.obtain()
    [record] = [r for r in caplog.records if r.name == "authenticator.enroll.exchange"]
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith(
        ": the signer waits: MachineNotFound: no Machine has the provider ID"
    )


def test_short_wait_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    node = FakeNode()
    node.cluster.wait["offer"] = "MachineNotFound: no Machine has the provider ID"
    with pytest.raises(DeadlinePassed):
        node.obtain(seconds=QUIET_SECONDS - 1)
    assert [r for r in caplog.records if r.name == "authenticator.enroll.exchange"] == []


def test_node_waits_for_its_machine() -> None:
    node = FakeNode()
    node.cluster.wait["offer"] = "MachineNotFound: no Machine has the provider ID"
    with pytest.raises(DeadlinePassed, match="MachineNotFound"):
        node.obtain()
    del node.cluster.wait["offer"]
    node.obtain()
    assert len(filed(node)) == 2


@pytest.mark.parametrize("kind", ["offer", "answer"])
def test_denied_request_ends_the_exchange_with_the_signers_reason(kind: str) -> None:
    node = FakeNode()
    node.cluster.deny[kind] = ("EndorsementKeyMismatch", "another key\nis on record\x1b[2J")
    with pytest.raises(RequestDenied, match=r"EndorsementKeyMismatch: another key is on") as caught:
        node.obtain()
    assert caught.value.message.isprintable()
    assert caught.value.detail == "EndorsementKeyMismatch"
    assert node.store.pending is None


@pytest.mark.parametrize(
    ("condition", "error"), [("Denied", RequestDenied), ("Failed", RequestFailed)]
)
def test_certificate_of_a_denied_or_failed_request_is_not_used(
    condition: str, error: type[AttestationError]
) -> None:
    node = FakeNode()

    def decide() -> None:
        node.cluster.reconcile()
        for csr in list(node.cluster.csrs.values()):
            if csr.certificate is not None:
                conditions = {**csr.conditions, condition: ("No", "no")}
                node.cluster.update(replace(csr, conditions=conditions))

    node.cluster.on_wait = decide
    with pytest.raises(error, match="No: no"):
        node.obtain()
    assert node.store.credential is None


def test_full_disk_does_not_hide_the_reason_of_a_failed_exchange() -> None:
    node = FakeNode()
    node.cluster.deny["offer"] = ("EndorsementKeyMismatch", "another key")
    node.cluster.on_wait = lambda: setattr(node.store, "is_full", True)
    with pytest.raises(RequestDenied):
        node.obtain()


@pytest.mark.timeout(30)
def test_expired_exchange_that_cannot_be_deleted_ends_the_call() -> None:
    """As on a disk that became read-only. The exchange would be resumed again and again."""
    node = at_challenge(FakeNode())
    node.clock.pass_time(CHALLENGE_TTL_SECONDS + 1)
    node.store.is_full = True
    with pytest.raises(ExchangeExpired):
        node.obtain()


def test_refused_version_names_the_versions_of_the_signer() -> None:
    node = FakeNode()
    node.cluster.deny["offer"] = ("UnsupportedVersion", "not supported here")
    with pytest.raises(VersionRefused, match=r"supports v1.*supports v2"):
        node.obtain()


@pytest.mark.parametrize("index", [0, 1])
def test_deleted_request_ends_the_exchange(index: int) -> None:
    node = FakeNode()

    def delete() -> None:
        if len(filed(node)) > index:
            del node.cluster.csrs[filed(node)[index]]

    node.cluster.on_wait = delete
    with pytest.raises(RequestDeleted):
        node.obtain()


def test_deleted_offer_is_not_needed_after_its_challenge_is_stored() -> None:
    node = at_challenge(FakeNode())
    node.cluster.csrs.clear()
    node.obtain()
    assert filed(node) == [f"kubelet-tpm-answer-{2:032x}"]


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, request=b"other"),
        lambda spec: replace(spec, usages=("server auth",)),
        lambda spec: replace(spec, expiration_seconds=600),
    ],
    ids=["request", "usages", "lifetime"],
)
def test_csr_with_other_content_under_our_name_is_a_conflict(
    change: Callable[[CsrRequest], CsrRequest],
) -> None:
    node = at_challenge(FakeNode())
    offer = node.cluster.csrs[f"kubelet-tpm-offer-{1:032x}"]
    spec = change(replace(offer.spec, name=f"kubelet-tpm-answer-{2:032x}"))
    node.cluster.csrs[spec.name] = replace(offer, spec=spec)
    with pytest.raises(RequestNameConflict):
        node.obtain()


def test_unreadable_challenge_is_ignored_until_a_readable_one() -> None:
    node = FakeNode()
    looks: list[str] = []

    def junk_first() -> None:
        if not looks:
            node.cluster.annotate(filed(node)[0], CHALLENGE_ANNOTATION, "junk")
        elif len(looks) == 1:
            csr = node.cluster.csrs[filed(node)[0]]
            node.cluster.update(replace(csr, annotations={}))
        looks.append("look")

    node.cluster.on_wait = junk_first
    node.obtain()
    assert len(looks) > 1


def test_unreadable_challenge_is_logged_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a version that changes a meaning would look like a signer that does not run."""
    node = FakeNode()
    node.cluster.change_challenge = lambda text: text.replace('"v1"', '"v2"')
    with pytest.raises(DeadlinePassed, match=r"cannot be read.*: the version must be v1"):
        node.obtain()
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "challenge: the version must be v1" in line]


def test_challenge_that_was_exchanged_later_does_not_end_the_exchange() -> None:
    """Others than the signer may be able to write the annotation, at any time."""
    node = at_challenge(FakeNode())
    [offer] = filed(node)
    first = decode_challenge(node.cluster.csrs[offer].annotations[CHALLENGE_ANNOTATION])
    other = replace(first, credential_blob=bytes(len(first.credential_blob)))
    node.cluster.annotate(offer, CHALLENGE_ANNOTATION, encode_challenge(other))
    node.obtain()
    assert len(filed(node)) == 2


def test_challenge_for_another_tpm_ends_the_exchange() -> None:
    node = at_challenge(FakeNode())
    node.tpm = type(node.tpm)("replaced")
    with pytest.raises(CredentialNotForThisTpm):
        node.obtain()
    assert node.store.pending is None


def test_challenge_for_an_older_attestation_key_template_restarts_the_exchange() -> None:
    """An update of this program changed the key's attributes, and with them its Name."""
    node = FakeNode()
    ecc = ATTESTATION_TEMPLATES[0]
    without_noda = replace(ecc, attributes=ecc.attributes & ~ObjectAttributes.NODA)
    current = node.tpm._attestation
    node.tpm._attestation = node.tpm._create(without_noda, "tpm")
    at_challenge(node)
    node.tpm._attestation = current
    with pytest.raises(CredentialNotForThisTpm):
        node.obtain()
    assert node.store.pending is None
    node.clock.pass_time(MAX_REFUSAL_COOLDOWN_SECONDS)
    node.obtain()


def test_pauses_in_an_outage_double_up_to_a_limit() -> None:
    node = FakeNode()
    node.cluster.errors = [ApiServerUnavailable("gone") for _ in range(7)]
    node.obtain()
    pauses = [0.25, 0.5, 1, 2, 4, 5, 5]
    assert node.clock.slept == [pause * 1.5 for pause in pauses], (
        "the fake random number adds half of the pause"
    )


def test_exchange_is_resumed_after_an_outage_longer_than_the_call() -> None:
    node = FakeNode()
    node.cluster.errors = [ApiServerUnavailable("gone") for _ in range(100)]
    before = node.clock.boottime()
    with pytest.raises(ApiServerUnavailable):
        node.obtain()
    assert node.clock.boottime() - before <= 60
    node.cluster.errors = []
    node.clock.pass_time(30)
    node.obtain()
    assert len(filed(node)) == 2


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["offer", "answer"])
def test_watches_that_end_at_once_are_throttled(kind: str) -> None:
    """As with a proxy that passes no streams on. The node polls, and still sees changes."""
    node = FakeNode()
    node.cluster.watches_end_at_once = True
    node.cluster.wait[kind] = "MachineNotFound"
    with pytest.raises(DeadlinePassed):
        node.obtain()
    pauses = [0.25, 0.5, 1, 2, 4, 5]
    assert node.clock.slept[:6] == [pause * 1.5 for pause in pauses]
    assert node.cluster.calls.count("wait_for_change") < 20
    del node.cluster.wait[kind]
    node.obtain()
    assert len(filed(node)) == 2


def change_issuance(**change: object) -> Callable[[FakeWorkload], None]:
    def apply(cluster: FakeWorkload) -> None:
        cluster.issuance = Issuance(**change)  # type: ignore[arg-type]

    return apply


WRONG_CERTIFICATES: dict[type[AttestationError], dict[str, Callable[[FakeWorkload], None]]] = {
    CertificateMismatch: {
        "another key": change_issuance(
            public_key=ec.generate_private_key(ec.SECP256R1()).public_key()
        ),
        "another name": change_issuance(node_name="worker-2"),
        "another organization": change_issuance(organisations=("other",)),
        "one organization more": change_issuance(
            organisations=("system:nodes", GROUP, "system:masters")
        ),
        "no group of a key": change_issuance(organisations=("system:nodes",)),
        "the groups of two keys": change_issuance(
            organisations=("system:nodes", GROUP, attested_group("cd" * 32, 1))
        ),
        "a group of no term": change_issuance(organisations=("system:nodes", f"{GROUP[:-1]}0")),
        "an authority": change_issuance(authority=True),
        "no usage": change_issuance(usage=None),
        "a name that was not requested": change_issuance(names=(x509.DNSName("worker-1"),)),
        "for servers": change_issuance(usage=SERVER_AUTH),
        "of negative lifetime": change_issuance(lifetime=-timedelta(minutes=5)),
    },
    ClockSkewTooLarge: {
        "expired long ago": change_issuance(
            backdated=timedelta(days=9), lifetime=-timedelta(days=2)
        ),
        "of the far future": change_issuance(backdated=-timedelta(days=2)),
    },
    CertificateNotAccepted: {
        "just expired": change_issuance(lifetime=-timedelta(seconds=1)),
        "accepted as another node": lambda cluster: setattr(
            cluster, "known_as", "system:node:worker-2"
        ),
        "anonymous": lambda cluster: setattr(cluster, "known_as", "system:anonymous"),
    },
}


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [(reason, wrong) for reason, wrongs in WRONG_CERTIFICATES.items() for wrong in wrongs],
)
def test_wrong_certificate_never_reaches_the_cache(
    reason: type[AttestationError], wrong: str
) -> None:
    node = FakeNode()
    good = node.obtain()
    node.clock.wall_time = good.renew_at
    WRONG_CERTIFICATES[reason][wrong](node.cluster)
    with pytest.raises(reason):
        node.obtain()
    assert node.store.credential == good
    assert node.store.pending is None


def test_text_around_a_certificate_is_discarded() -> None:
    node = FakeNode()
    node.cluster.issuance = Issuance(text_around=b'CN = "x"\\\n')
    assert node.obtain().key_pair.certificate.startswith(b"-----BEGIN CERTIFICATE-----\n")


def test_certificate_without_basic_constraints_is_accepted() -> None:
    node = FakeNode()
    node.cluster.issuance = Issuance(authority=None)
    assert node.obtain() == node.store.credential


@pytest.mark.parametrize("skew", [-5 * 86400.0, -7200.0, 7200.0, 86000.0])
def test_node_whose_clock_is_hours_off_joins(skew: float) -> None:
    node = FakeNode()
    node.cluster.skew = skew
    credential = node.obtain()
    assert credential.renew_at > node.clock.now()


@pytest.mark.parametrize(
    ("skew", "message", "requests"),
    [
        pytest.param(2 * 86400.0, "48 hours behind", 1, id="two days behind"),
        pytest.param(-10 * 86400.0, "and this node's clock says", 2, id="ten days ahead"),
    ],
)
def test_wrong_clock_gets_no_certificates_that_it_discards(
    skew: float, message: str, requests: int
) -> None:
    """16 or 17 certificates an hour were issued and discarded.

    A clock that is behind shows before the answer is sent. One that is ahead needs the dates of a
    certificate.
    """
    node = FakeNode()
    node.cluster.skew = skew
    with pytest.raises(ClockSkewTooLarge, match=message):
        node.obtain()
    for _ in range(60):
        with pytest.raises(CoolingDown):
            node.obtain()
        node.clock.pass_time(50)
    assert len(filed(node)) == requests


@pytest.mark.parametrize("skew", [2 * 86400.0, -10 * 86400.0])
def test_cooldown_for_a_wrong_clock_ends_when_the_clock_is_set(skew: float) -> None:
    node = FakeNode()
    node.cluster.skew = skew
    with pytest.raises(ClockSkewTooLarge):
        node.obtain()
    node.clock.wall_time += skew
    node.cluster.skew = 0.0
    node.obtain()


def test_node_with_a_long_name_joins() -> None:
    name = ".".join(["n" * 60] * 4)
    node = FakeNode(settings={"nodeName": name})
    assert node.obtain().node_name == name
