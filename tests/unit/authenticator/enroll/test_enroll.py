"""The requesting credential, the start of exchanges, and the cached certificate."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from authenticator.enroll.csr_status import CREDENTIAL_UNKNOWN
from authenticator.enroll.enroll import MAX_KNOWN_CALLS, Trigger
from authenticator.errors import (
    BootstrapCredentialUnusable,
    CertificateNotAccepted,
    CertificateNotYetValid,
    ClientCertificateUnusable,
    ConfigurationInvalid,
    CoolingDown,
    DeadlinePassed,
    ExchangeExpired,
    Forbidden,
    Invalid,
    OfferUnanswered,
    RequestDeleted,
    RequestDenied,
    StateDirectoryUnwritable,
    TpmUnavailable,
    Unauthorized,
    VersionRefused,
)
from authenticator.model import KeyPair, PendingExchange, Token
from authenticator.providers.provider import Identity
from authenticator.state.cooldown import duration_after
from authenticator.state.credential import Freshness, freshness
from common.errors import ApiServerUnavailable
from signer.errors import RequesterCredentialUnknown
from tests.fakes.csr_api import BOOTSTRAP_USER, Issuance
from tests.fakes.node import NODE_NAME, FakeNode

NODE_USER = "system:node:worker-1.example"
ENTRY = Token(token="entry")


def joined() -> FakeNode:
    node = FakeNode()
    node.obtain()
    return node


def due(node: FakeNode) -> FakeNode:
    """Move the clock to the time of the renewal."""
    node.clock.pass_time(node.cached.renew_at - node.clock.now())
    return node


def expired(node: FakeNode) -> FakeNode:
    """Move the clock to the end of the certificate."""
    node.clock.pass_time(node.cached.not_after - node.clock.now())
    return node


def refused(node: FakeNode) -> FakeNode:
    """Let the API server answer the certificate with 401."""
    node.cluster.revoked.add(node.cached.key_pair.certificate)
    return node


def requesters(node: FakeNode) -> list[str]:
    return list(node.cluster.filed_by.values())


def test_first_join_uses_the_bootstrap_credential() -> None:
    assert requesters(joined()) == [BOOTSTRAP_USER] * 2


def test_renewal_uses_the_current_certificate_and_no_bootstrap_credential() -> None:
    node = due(joined())
    node.bootstrap = None
    old = node.cached
    new = node.obtain()
    assert requesters(node)[2:] == [NODE_USER] * 2
    assert new.key_pair.key != old.key_pair.key
    assert node.store.credential == new


SUFFICIENT: dict[str, tuple[Trigger, Callable[[], FakeNode]]] = {
    "another call has renewed it": (Trigger.RENEWAL_DUE, joined),
    "a killed join has cached it": (Trigger.JOIN, joined),
    "suspected, and accepted": (Trigger.UNAUTHORIZED_SUSPECTED, joined),
    "due, for a call that has to serve one": (Trigger.REQUIRED, lambda: due(joined())),
}


@pytest.mark.parametrize("case", SUFFICIENT)
def test_sufficient_certificate_is_kept(case: str) -> None:
    trigger, make = SUFFICIENT[case]
    node = make()
    assert node.obtain(trigger) == node.store.credential
    assert len(node.cluster.csrs) == 2


def test_forced_run_gets_a_new_certificate_at_any_time() -> None:
    node = joined()
    node.obtain(Trigger.FORCED)
    assert len(node.cluster.csrs) == 4


def test_refused_certificate_is_replaced_with_the_bootstrap_credential() -> None:
    node = refused(due(joined()))
    node.obtain()
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2


def test_expired_certificate_requests_nothing() -> None:
    node = expired(joined())
    node.obtain()
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2


def test_expired_certificate_is_tried_once() -> None:
    node = expired(joined())
    node.bootstrap = None
    node.cluster.calls.clear()
    with pytest.raises(Unauthorized, match=r"401.*kubeadm token create"):
        node.obtain()
    assert node.cluster.calls == ["self_subject_review"], "one try, since the clock may be wrong"
    with pytest.raises(CoolingDown):
        node.obtain()
    assert node.cluster.calls == ["self_subject_review"]


def test_certificate_for_another_server_and_ca_requests_but_is_not_served() -> None:
    node = joined()
    old = node.store.credential
    node.url, node.ca = "https://another.example", node.cluster.authority()
    assert node.obtain(Trigger.REQUIRED) != old
    assert requesters(node)[2:] == [NODE_USER] * 2


def test_certificate_of_another_node_name_requests_nothing() -> None:
    node = joined()
    node.settings["nodeName"] = "worker-2"
    node.obtain()
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2


RESETS: dict[str, dict[str, object]] = {
    "host name": {"nodeName": None},
    "setting": {"nodeName": "worker-2"},
    "provider ID": {"providerID": "test:///2"},
    "provider": {"nodeName": None, "providerID": None, "provider": "aws"},
}


@pytest.mark.parametrize("reset", RESETS)
def test_reset_host_does_not_join_with_the_certificate_of_another_node(reset: str) -> None:
    """Its state directory was left over. Its certificate must not request the new one either."""
    node = joined()
    node.settings = RESETS[reset]
    node.hostname = "worker-2"
    node.identity = Identity(provider_id="test:///1", node_name="worker-2")
    credential = node.obtain(Trigger.JOIN)
    assert credential.node_name == (NODE_NAME if reset == "provider ID" else "worker-2")
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2
    assert node.obtain(Trigger.JOIN) == credential


def test_failed_join_of_a_reset_host_keeps_the_old_certificate() -> None:
    """The host name may be wrong for a moment, as before DHCP."""
    node = joined()
    old = node.store.credential
    node.settings = {"nodeName": None}
    node.hostname = "192-0-2-7"
    node.cluster.deny["offer"] = ("NodeNameNotOfMachine", "no")
    with pytest.raises(RequestDenied):
        node.obtain(Trigger.JOIN)
    assert node.store.credential == old


def test_suspected_certificate_that_is_refused_is_replaced() -> None:
    node = refused(joined())
    node.cluster.calls.clear()
    node.obtain(Trigger.UNAUTHORIZED_SUSPECTED)
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2
    assert node.cluster.calls.count("create") == 2, "no CSR with the refused certificate"


def test_suspected_certificate_is_kept_in_an_outage() -> None:
    node = joined()
    node.cluster.errors = [ApiServerUnavailable("gone")]
    old = node.store.credential
    with pytest.raises(ApiServerUnavailable):
        node.obtain(Trigger.UNAUTHORIZED_SUSPECTED)
    assert node.store.credential == old


def test_no_certificate_and_no_bootstrap_credential_names_the_operators_step() -> None:
    node = FakeNode(bootstrap=None)
    with pytest.raises(BootstrapCredentialUnusable, match="kubeadm token create"):
        node.obtain()
    assert node.cluster.calls == []


@pytest.mark.parametrize("trigger", [Trigger.RENEWAL_DUE, Trigger.UNAUTHORIZED_SUSPECTED])
def test_refused_certificate_is_sent_once(trigger: Trigger) -> None:
    """Each 401 that the kubelet gets causes a call, and each call starts a background run."""
    node = refused(due(joined()))
    node.bootstrap = None
    with pytest.raises(Unauthorized, match=r"401.*kubeadm token create"):
        node.obtain(trigger)
    node.cluster.calls.clear()
    with pytest.raises(CoolingDown, match=r"Unauthorized.*401"):
        node.obtain(trigger)
    assert "create" not in node.cluster.calls


def test_new_bootstrap_credential_ends_the_pause_after_a_refused_certificate() -> None:
    node = refused(due(joined()))
    bootstrap, node.bootstrap = node.bootstrap, None
    with pytest.raises(Unauthorized):
        node.obtain()
    node.bootstrap = bootstrap
    assert node.obtain() == node.store.credential


def test_refused_bootstrap_credential_names_the_operators_step() -> None:
    node = FakeNode(bootstrap=Token(token="expired"))
    with pytest.raises(Unauthorized, match=r"401.*kubeadm token create"):
        node.obtain()


def powered_off_for_months() -> FakeNode:
    """Return a node with an entry credential whose certificate and token have expired."""
    node = expired(joined())
    node.cluster.tokens = {ENTRY.token}
    node.entry = ENTRY
    return node


@pytest.mark.parametrize("bootstrap", [Token(token="expired"), None])
def test_node_that_was_off_for_months_comes_back_with_the_entry_credential(
    bootstrap: Token | None,
) -> None:
    node = powered_off_for_months()
    node.bootstrap = bootstrap
    assert node.obtain() == node.store.credential


def test_bootstrap_credential_comes_before_the_entry_credential() -> None:
    """Only the Machine's own bootstrap token may make a first claim without a record."""
    node = FakeNode(entry=ENTRY)
    node.obtain()
    assert requesters(node) == [BOOTSTRAP_USER] * 2


def test_refused_entry_credential_names_the_operators_step() -> None:
    node = powered_off_for_months()
    node.cluster.tokens.clear()
    with pytest.raises(Unauthorized, match=r"401.*kubeadm token create"):
        node.obtain()


def test_cooldown_ends_with_another_entry_credential() -> None:
    node = powered_off_for_months()
    node.entry = None
    with pytest.raises(Unauthorized):
        node.obtain()
    node.entry = ENTRY
    assert node.obtain() == node.store.credential


def restored_from_snapshot() -> FakeNode:
    """Return a node whose certificate the API server accepts and the signer does not know (K4)."""
    node = due(joined())
    node.cluster.deny_requesters[NODE_USER] = ("RequesterCredentialUnknown", "not of its last")
    return node


@pytest.mark.parametrize("source", ["bootstrap", "entry"])
def test_node_restored_from_a_snapshot_comes_back_without_its_certificate(source: str) -> None:
    """With `unknownCredential: Deny` its certificate is never accepted again."""
    node = restored_from_snapshot()
    if source == "entry":
        node.bootstrap, node.entry = None, ENTRY
        node.cluster.tokens = {ENTRY.token}
    assert node.obtain() == node.store.credential
    assert requesters(node)[2:] == [NODE_USER] + [BOOTSTRAP_USER] * 2


def test_node_restored_from_a_snapshot_names_the_operators_step() -> None:
    node = restored_from_snapshot()
    node.bootstrap = None
    with pytest.raises(RequestDenied, match=r"other certificates.*kubeadm token create"):
        node.obtain()
    with pytest.raises(CoolingDown):
        node.obtain()


def test_other_denial_of_the_certificate_does_not_use_the_bootstrap_credential() -> None:
    node = due(joined())
    node.cluster.deny_requesters[NODE_USER] = ("EndorsementKeyBanned", "no")
    with pytest.raises(RequestDenied, match="EndorsementKeyBanned"):
        node.obtain()
    assert requesters(node)[2:] == [NODE_USER]


def test_reason_of_the_signer_for_an_old_certificate_is_known() -> None:
    assert RequesterCredentialUnknown.reason == CREDENTIAL_UNKNOWN


def with_signer_ahead(minutes: int) -> FakeNode:
    """Return a node whose signer's clock is ahead of the API server's; it backdates by 5 min."""
    node = FakeNode()
    node.cluster.issuance.backdated = timedelta(minutes=5 - minutes)
    return node


def test_clock_of_a_signer_that_is_ahead_is_named_and_its_certificate_awaited() -> None:
    """The API server answers 401, as for a certificate of another CA."""
    node = with_signer_ahead(minutes=7)
    with pytest.raises(
        CertificateNotYetValid,
        match=r"valid from 2027-01-15T08:02:00Z.*clock says 2027-01-15T08:00:00Z.*signer's clock",
    ):
        node.obtain()
    requested = len(node.cluster.csrs)
    node.clock.pass_time(120)
    assert node.obtain() == node.store.credential
    assert len(node.cluster.csrs) == requested, "the same certificate"


def test_refused_certificate_that_has_begun_blames_the_authority() -> None:
    node = with_signer_ahead(minutes=5)
    node.cluster.review_errors = [Unauthorized("401")]
    with pytest.raises(CertificateNotAccepted, match="signer's CA"):
        node.obtain()


def test_api_server_without_date_blames_the_authority() -> None:
    node = with_signer_ahead(minutes=7)
    node.cluster.has_date = False
    with pytest.raises(CertificateNotAccepted, match="signer's CA"):
        node.obtain()


@pytest.mark.parametrize("trigger", [Trigger.RENEWAL_DUE, Trigger.UNAUTHORIZED_SUSPECTED])
def test_certificate_without_its_key_is_replaced_and_not_reported_as_refused(
    trigger: Trigger, caplog: pytest.LogCaptureFixture
) -> None:
    node = due(joined())
    node.cluster.unusable.add(node.cached.key_pair.certificate)
    bootstrap, node.bootstrap = node.bootstrap, None
    with pytest.raises(ClientCertificateUnusable, match=r"cannot be read.*kubeadm token create"):
        node.obtain(trigger)
    node.bootstrap = bootstrap
    node.obtain(trigger)
    assert requesters(node)[2:] == [BOOTSTRAP_USER] * 2
    assert "401" not in caplog.text


def test_bootstrap_certificate_without_its_key_is_named() -> None:
    pair = KeyPair(certificate=b"certificate", key=b"another")
    node = FakeNode(bootstrap=pair, entry=ENTRY)
    node.cluster.unusable.add(pair.certificate)
    with pytest.raises(Unauthorized, match=r"\(401\)"):
        node.obtain()
    node.entry = None
    with pytest.raises(BootstrapCredentialUnusable, match="cannot be read"):
        node.obtain()


def test_failed_clean_up_is_not_reported_as_a_certificate_that_is_not_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = FakeNode()

    def fail(fingerprint: str) -> None:
        raise StateDirectoryUnwritable(f"input/output error: {fingerprint}")

    node.store.delete_pending = fail  # type: ignore[method-assign]
    assert node.obtain() == node.store.credential
    [warning] = [record.message for record in caplog.records]
    assert "is stored; the exchange that has ended stays" in warning


def test_failed_renewal_keeps_the_certificate() -> None:
    node = due(joined())
    old = node.store.credential
    node.cluster.deny["offer"] = ("MachineDeleting", "bye")
    with pytest.raises(RequestDenied):
        node.obtain()
    assert node.store.credential == old


def with_disk_that_fills_up(node: FakeNode) -> FakeNode:
    """Let the disk fill up after the answer is filed, before its certificate is stored."""
    node.cluster.on_wait = lambda: setattr(node.store, "is_full", len(node.cluster.csrs) == 2)
    return node


@pytest.mark.parametrize("trigger", [t for t in Trigger if t is not Trigger.REQUIRED])
def test_certificate_that_is_neither_printed_nor_stored_is_a_failure(trigger: Trigger) -> None:
    """A run in the background was recorded as done, and the next one ended in the same way."""
    node = with_disk_that_fills_up(FakeNode())
    with pytest.raises(StateDirectoryUnwritable):
        node.obtain(trigger)


def test_new_certificate_is_served_although_the_disk_is_full() -> None:
    node = with_disk_that_fills_up(FakeNode())
    credential = node.obtain(Trigger.REQUIRED)
    assert node.store.credential is None
    node.store.is_full = False
    node.cluster.on_wait = lambda: None
    assert node.obtain().key_pair == credential.key_pair, (
        "the exchange on disk yields the same certificate"
    )


def test_no_exchange_starts_on_a_full_disk() -> None:
    node = FakeNode()
    node.store.is_full = True
    with pytest.raises(StateDirectoryUnwritable):
        node.obtain()
    assert node.cluster.calls == []


def denied() -> FakeNode:
    node = FakeNode()
    node.cluster.deny["offer"] = ("EndorsementKeyMismatch", "no")
    with pytest.raises(RequestDenied):
        node.obtain()
    return node


def test_refusal_starts_a_cooldown() -> None:
    node = denied()
    node.cluster.calls.clear()
    with pytest.raises(CoolingDown, match="RequestDenied"):
        node.obtain()
    assert node.cluster.calls == []


def test_each_cooldown_is_longer_than_the_last() -> None:
    node = denied()
    pauses = []
    for _ in range(12):
        assert node.store.cooldown is not None
        pauses.append(node.store.cooldown.until - node.clock.boottime())
        node.clock.pass_time(pauses[-1])
        with pytest.raises(RequestDenied):
            node.obtain()
    assert pauses == sorted(pauses)
    assert pauses[-1] == 600 * 0.75


def test_success_deletes_the_cooldown() -> None:
    node = denied()
    node.cluster.deny.clear()
    assert node.store.cooldown is not None
    node.clock.pass_time(node.store.cooldown.until - node.clock.boottime())
    node.obtain()
    assert node.store.cooldown is None


def test_forced_run_ignores_the_cooldown() -> None:
    node = denied()
    node.cluster.deny.clear()
    node.obtain(Trigger.FORCED)


CHANGES: dict[str, Callable[[FakeNode], object]] = {
    "reboot": lambda node: node.clock.reboot(),
    "settings": lambda node: node.settings.update(expirationSeconds=3600),
    "CA": lambda node: setattr(node, "ca", node.cluster_ca + node.cluster.authority()),
    "bootstrap credential": lambda node: setattr(node, "bootstrap", Token(token="new")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_cooldown_ends_when_its_input_changes(change: str) -> None:
    node = denied()
    node.cluster.deny.clear()
    node.cluster.tokens.add("new")
    CHANGES[change](node)
    node.obtain()


@pytest.mark.parametrize("change", ["reboot", "settings"])
def test_failures_of_another_boot_or_setting_are_not_counted(change: str) -> None:
    node = denied()
    node.cluster.deny["offer"] = ("EndorsementKeyMismatch", "still")
    for _ in range(2):
        with pytest.raises(RequestDenied):
            node.obtain(Trigger.FORCED)
    assert node.store.cooldown is not None
    assert node.store.cooldown.failures == 2
    CHANGES[change](node)
    with pytest.raises(RequestDenied):
        node.obtain(Trigger.FORCED)
    assert node.store.cooldown.failures == 0


def test_full_disk_does_not_replace_the_failure_by_a_cooldown() -> None:
    node = FakeNode(bootstrap=Token(token="expired"))
    node.cluster.errors = [Forbidden("no")]
    save = node.store.save_pending

    def fill(pending: PendingExchange) -> None:
        save(pending)
        node.store.is_full = True

    node.store.save_pending = fill  # type: ignore[method-assign]
    with pytest.raises(Forbidden):
        node.obtain()
    assert node.store.cooldown is None


def test_clock_that_jumps_does_not_change_a_cooldown() -> None:
    node = denied()
    for jump in (-86400, 86400 * 400):
        node.clock.wall_time += jump
        with pytest.raises(CoolingDown):
            node.obtain()


def test_bug_starts_a_cooldown() -> None:
    node = FakeNode()
    node.cluster.errors = [ZeroDivisionError("bug")]
    with pytest.raises(ZeroDivisionError):
        node.obtain()
    assert node.store.cooldown is not None
    assert node.store.cooldown.reason == "ZeroDivisionError"


def test_waiting_for_the_signer_starts_no_cooldown() -> None:
    node = FakeNode()
    node.cluster.signer_is_away = True
    with pytest.raises(DeadlinePassed):
        node.obtain()
    assert node.store.cooldown is None


@pytest.mark.parametrize(
    ("error", "failures", "seconds"),
    [
        (DeadlinePassed(""), 9, 0),
        (OfferUnanswered(""), 0, 2),
        (OfferUnanswered(""), 11, 1800),
        (ExchangeExpired(""), 9, 0),
        (BootstrapCredentialUnusable(""), 9, 0),
        (ConfigurationInvalid(""), 9, 0),
        (CoolingDown(""), 9, 0),
        (ApiServerUnavailable(""), 0, 2),
        (ApiServerUnavailable(""), 9, 30),
        (TpmUnavailable(""), 9, 30),
        (RequestDenied(""), 0, 2),
        (RequestDenied(""), 9, 600),
        (RequestDeleted(""), 9, 600),
        (Unauthorized(""), 9, 600),
        (Forbidden(""), 9, 600),
        (Invalid(""), 9, 600),
        (ZeroDivisionError(), 9, 30),
    ],
    ids=repr,
)
def test_cooldown_depends_on_the_failure(error: Exception, failures: int, seconds: float) -> None:
    assert duration_after(error, failures, 0) == seconds
    assert duration_after(error, failures, 1) == seconds / 2


def test_cooldowns_double_up_to_their_limit() -> None:
    pauses = [duration_after(RequestDenied(""), failures, 0) for failures in range(10)]
    assert pauses == [2, 4, 8, 16, 32, 64, 128, 256, 512, 600]
    assert duration_after(RequestDenied(""), 10**6, 0) == 600, "a large count does not overflow"


def test_refused_version_is_tried_again_hourly() -> None:
    assert duration_after(VersionRefused(""), 0, 0) == 3600
    assert duration_after(VersionRefused(""), 9, 1) == 3240


@pytest.mark.parametrize("lifetime", [timedelta(minutes=10), timedelta(hours=1), timedelta(days=7)])
def test_renewal_is_in_the_last_thirty_percent(lifetime: timedelta) -> None:
    node = FakeNode()
    node.cluster.issuance = Issuance(lifetime=lifetime)
    credential = node.obtain()
    share = (credential.renew_at - credential.received_at) / lifetime.total_seconds()
    assert 0.69 < share <= 0.8


def test_short_certificate_is_renewed_while_its_exchange_is_still_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = FakeNode()
    node.cluster.issuance = Issuance(lifetime=timedelta(minutes=10))
    monkeypatch.setattr(node.store, "delete_pending", lambda _: None)
    first = node.obtain()
    assert node.store.pending is not None
    second = due(node).obtain()
    assert second.key_pair.key != first.key_pair.key


def test_exchange_on_disk_whose_certificate_was_refused_is_not_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = FakeNode()
    monkeypatch.setattr(node.store, "delete_pending", lambda _: None)
    first = node.obtain()
    assert node.store.pending is not None
    node.cluster.revoked.add(first.key_pair.certificate)
    assert node.obtain(Trigger.UNAUTHORIZED_SUSPECTED).key_pair.key != first.key_pair.key


def test_freshness_prefers_serving() -> None:
    credential = joined().cached
    received, ends = credential.received_at, credential.not_after
    assert freshness(credential, received) is Freshness.FRESH
    assert freshness(credential, received - 300) is Freshness.FRESH
    assert freshness(credential, received - 301) is Freshness.RENEWAL_DUE
    assert freshness(credential, received - 3600) is Freshness.RENEWAL_DUE, "the clock was set back"
    assert freshness(credential, credential.renew_at) is Freshness.RENEWAL_DUE
    assert freshness(credential, ends) is Freshness.EXPIRED
    # Received before the clock was corrected: only the dates of the certificate are right.
    early = replace(credential, received_at=received - 300 * 86400)
    assert freshness(early, received) is Freshness.RENEWAL_DUE
    # Received while the clock was ahead: only the time since its receipt is right.
    late = replace(credential, received_at=received + 300 * 86400)
    assert freshness(late, late.received_at) is Freshness.FRESH
    assert freshness(late, late.renew_at) is Freshness.RENEWAL_DUE
    assert freshness(late, late.received_at + late.lifetime) is Freshness.EXPIRED


def test_fresh_certificate_is_unusable_after_the_ca_bundle_grew() -> None:
    """Issue 11, point 21: without the signer every call failed, with 167 h left."""
    node = joined()
    first = node.store.credential
    node.cluster.signer_is_away = True
    node.ca = node.cluster_ca + node.cluster.authority()
    assert node.obtain(Trigger.REQUIRED) == first
    node.ca, node.url = None, "https://another.example"
    assert node.obtain(Trigger.REQUIRED) == first
    node.settings["expirationSeconds"] = 3600
    assert node.obtain(Trigger.REQUIRED) == first


def test_certificate_for_another_exec_info_is_renewed_once() -> None:
    node = joined()
    first = node.store.credential
    node.settings["expirationSeconds"] = 3600
    second = node.obtain()
    assert second != first
    assert requesters(node)[2:] == [NODE_USER] * 2
    assert node.obtain() == second


def test_two_kubeconfigs_evict_each_others_certificate() -> None:
    """Issue 11, point 21: each call of one made the other's certificate unusable."""
    node = joined()
    for _ in range(10):
        for url in ("https://127.0.0.1:6443", "https://api.example"):
            node.url = url
            node.obtain()
    assert len(node.cluster.csrs) == 4, "one renewal, for the second kubeconfig"


def test_two_kubeconfigs_discard_each_others_exchanges() -> None:
    """Issue 11, point 21: 60 offers an hour, and with a slow signer neither call joined."""
    node = FakeNode()
    node.cluster.signer_is_away = True
    for _ in range(4):
        for url in ("https://127.0.0.1:6443", "https://api.example"):
            node.url = url
            with pytest.raises(DeadlinePassed):
                node.obtain()
    assert len(node.cluster.csrs) == 2
    node.cluster.signer_is_away = False
    node.obtain()
    assert len(node.cluster.csrs) == 3, "an offer for each kubeconfig, and one answer"


def test_kubeconfigs_that_differ_in_other_bytes_share_an_exchange() -> None:
    node = FakeNode()
    node.cluster.signer_is_away = True
    for timeout in (30, 45, 60):
        node.settings["timeoutSeconds"] = timeout
        with pytest.raises(DeadlinePassed):
            node.obtain()
    assert len(node.cluster.csrs) == 1


def test_two_kubeconfigs_end_each_others_cooldown() -> None:
    node = FakeNode()
    node.cluster.deny["offer"] = ("EndorsementKeyMismatch", "no")
    for url in ("https://127.0.0.1:6443", "https://api.example"):
        node.url = url
        with pytest.raises(RequestDenied):
            node.obtain()
    for url in ("https://127.0.0.1:6443", "https://api.example"):
        node.url = url
        with pytest.raises(CoolingDown):
            node.obtain()


@pytest.mark.parametrize("hostname", ["localhost", "(none)", "", "worker_1"])
def test_transient_host_name_throws_the_certificate_away(
    hostname: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue 11, point 22."""
    node = FakeNode(settings={"nodeName": None}, hostname="worker-1.example")
    first = node.obtain()
    node.hostname = hostname
    assert node.obtain(Trigger.REQUIRED) == first
    assert f"the host name is {hostname!r}" in caplog.text
    renewed = due(node).obtain()
    assert renewed != first
    assert renewed.node_name == "worker-1.example"
    assert requesters(node)[2:] == [NODE_USER] * 2


@pytest.mark.parametrize("hostname", ["worker_1", "localhost.localdomain"])
def test_host_name_that_is_no_node_name_is_reported_when_a_certificate_is_needed(
    hostname: str,
) -> None:
    node = FakeNode(settings={"nodeName": None}, hostname=hostname)
    with pytest.raises(
        ConfigurationInvalid, match=rf"'{hostname}' is not a node name.*--node-name"
    ):
        node.obtain()
    assert node.cluster.calls == []


def test_clock_days_ahead_throws_the_certificate_away(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 11, point 22: the API server still accepts it."""
    node = expired(joined())
    node.cluster.skew = -3.0 * 86400
    first = node.store.credential
    assert node.obtain(Trigger.REQUIRED) == first
    assert "correct the clock" in caplog.text
    node.bootstrap = None
    assert node.obtain(Trigger.RENEWAL_DUE) != first, "the certificate requests its own renewal"


def test_expired_certificate_is_tried_at_each_call_of_an_outage() -> None:
    """Issue 11, point 30: client-go has no backoff, so a failing call has to be cheap."""
    node = expired(joined())
    node.cluster.errors = [ApiServerUnavailable("gone")] * 100
    with pytest.raises(ApiServerUnavailable):
        node.obtain(Trigger.REQUIRED)
    with pytest.raises(CoolingDown, match="ApiServerUnavailable"):
        node.obtain(Trigger.REQUIRED)


def test_node_without_basic_user_never_joins() -> None:
    """Issue 11, point 23: 403 for SelfSubjectReview shows that the certificate works."""
    node = FakeNode()
    node.cluster.review_errors = [Forbidden('(403): User "system:node:worker-1.example" cannot')]
    assert node.obtain() == node.store.credential


def test_403_for_an_anonymous_user_does_not_show_that_a_certificate_works() -> None:
    node = FakeNode()
    node.cluster.review_errors = [Forbidden('(403): User "system:anonymous" cannot create')]
    with pytest.raises(CertificateNotAccepted):
        node.obtain()
    assert node.store.credential is None


def test_node_before_kubernetes_1_28_never_joins() -> None:
    """Issue 11, point 23: 404 for SelfSubjectReview; 24 certificates were discarded in 6 hours."""
    node = FakeNode()
    node.cluster.has_self_subject_review = False
    assert node.obtain() == node.store.credential
    assert "can_create_csrs" in node.cluster.calls


def test_certificate_of_no_user_is_refused_before_kubernetes_1_28() -> None:
    node = FakeNode()
    node.cluster.has_self_subject_review = False
    node.cluster.may_create_csrs = False
    with pytest.raises(CertificateNotAccepted):
        node.obtain()


def test_403_for_a_suspected_certificate_is_no_refusal() -> None:
    node = joined()
    node.cluster.review_errors = [Forbidden("(403): no")]
    assert node.obtain(Trigger.UNAUTHORIZED_SUSPECTED) == node.store.credential


def test_number_of_known_calls_is_bounded() -> None:
    node = joined()
    for number in range(MAX_KNOWN_CALLS + 3):
        node.url = f"https://{number}.example"
        node.obtain()
    assert len(node.cached.known_calls) == MAX_KNOWN_CALLS


def test_call_in_a_cooldown_queries_no_provider() -> None:
    """client-go has no backoff: it repeats a call that does nothing, with all of its cost."""
    node = FakeNode(settings={"provider": "aws", "providerID": None, "nodeName": None})
    node.identity = Identity(provider_id="aws:///1", node_name="worker-1")
    node.cluster.deny["offer"] = ("EndorsementKeyMismatch", "no")
    with pytest.raises(RequestDenied):
        node.obtain()
    with pytest.raises(CoolingDown):
        node.obtain()
    assert node.queried_providers == ["aws"]
