"""One exchange with the signer, from the offer to a certificate that was accepted.

Theory of operation. The state of an exchange is one `PendingExchange` on disk and its two CSRs at
the API server. Each step reads both and does what is next:

    state on disk            step               next
    -                        begin              key and offer are stored, under new CSR names
    offer                    await_challenge    the offer is created; its challenge is stored
    offer, challenge         make_answer        the TPM opens the challenge; the answer is stored
    offer, challenge, answer await_certificate  the answer is created; its certificate is verified
    the same                 validate           the certificate is tried, then cached by the caller
    -                                           the caller deletes the exchange after that

What a step sends is on disk before it is sent, and CSRs are found by the names on disk:

- killed before a write: the step runs again. The TPM or the API server repeats what it did; an
  offer's TPM work is repeated under new names, of which nothing was sent yet.
- killed after a write and before sending: the next call sends the stored bytes.
- killed after sending: `create` returns the CSR that exists under the stored name.
- killed after the certificate is cached: the exchange is discarded, because its key is cached.
- rebooted: the exchange is replaced, since its boot times mean nothing any more.

Ages count in boot time from first sight, because the clocks of node and signer may differ
(docs/protocol.md section 3). The challenge on the offer may be one that the signer made for another
offer with this TPM's keys: the node cannot notice that. So the quote contains the digest of the
node's own request, and such a quote is accepted for no other request. The first valid challenge is
answered; later changes of the annotation are ignored. A certificate is verified, then tried.

Client and serving certificates differ in what is requested, and in `validate_certificate`.
"""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeVar

from authenticator.enroll import issued_certificate
from authenticator.enroll.csr_status import (
    NOT_ANSWERED,
    find_challenge,
    pending_reason,
    raise_if_rejected,
)
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.enroll.issued_certificate import IssuedCertificate
from authenticator.errors import (
    ClockSkewTooLarge,
    DeadlinePassed,
    ExchangeExpired,
    OfferUnanswered,
    RequestDeleted,
    RequestNameConflict,
    StateDirectoryUnwritable,
)
from authenticator.model import (
    EXCHANGE_TTL_SECONDS,
    CertificateSpec,
    Csr,
    CsrApi,
    CsrRequest,
    Deadline,
    KeyPair,
    PendingExchange,
    backoff,
)
from common import evidence
from common.challenge import MEMBERS, Challenge, decode_challenge
from common.errors import ApiServerUnavailable, StartOver
from common.requests.binding import answer_extra_data, sha256
from common.requests.csr import build_pkcs10, decode_request, encode_request

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

OFFER_PREFIX: Final = "kubelet-tpm-offer-"
ANSWER_PREFIX: Final = "kubelet-tpm-answer-"
OFFER_TTL_SECONDS: Final = 10 * 60
"""An offer without a challenge is replaced after this time."""

CHALLENGE_TTL_SECONDS: Final = 4 * 60
"""A challenge is answered within this time of its first sight, or not at all."""

WATCH_TIMEOUT_SECONDS: Final = 30
"""Length of one watch; then the CSR is read again."""

INITIAL_BACKOFF_SECONDS: Final = 0.25
MAX_BACKOFF_SECONDS: Final = 5.0
"""Pauses after calls that failed, or watches that ended immediately without news."""

QUIET_SECONDS: Final = 5
"""Seconds of one call, in which no reason is logged: most waits end by themselves."""
_MAX_LOGGED_REASONS: Final = 5
"""Reasons of one call. Others than the signer may be able to write the reason, too."""

CLOCK_TOLERANCE_SECONDS: Final = issued_certificate.CLOCK_TOLERANCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A certificate with its key; it passed all checks, and the API server accepted it once."""

    issued: IssuedCertificate
    pair: KeyPair
    fingerprint: str
    """Of the exchange, which the caller deletes when the credential is stored."""


Trial = Callable[[IssuedCredential], None]
"""Tries a new certificate. Raises `StartOver` leaves when it does not serve its purpose,
`ApiServerUnavailable` when the trial has to be repeated, and other `Unavailable` leaves when a
later call has to repeat it."""


def run_exchange(
    spec: CertificateSpec,
    deps: EnrollDependencies,
    api: CsrApi,
    validate_certificate: Trial,
    deadline: Deadline,
) -> IssuedCredential:
    """Begin an exchange or resume the one on disk, until it ends or the deadline passes.

    An expired exchange is not a failure: the next one begins immediately if there is time. After
    OfferUnanswered none begins: no signer runs, so the caller starts a cooldown. The caller holds
    the lock, and deletes the exchange from disk when the credential is stored. Raises what the
    interfaces raise, DeadlinePassed (with the signer's pending reason), StartOver leaves.
    """
    while True:
        try:
            return _Exchange(spec, deps, api, deadline).run(validate_certificate)
        except StartOver as error:
            with contextlib.suppress(StateDirectoryUnwritable):
                deps.store.delete_pending(spec.fingerprint)
                if isinstance(error, ExchangeExpired) and deadline.remaining() > 0:
                    continue
            raise


class _Exchange:
    __slots__ = ("_api", "_began", "_deadline", "_deps", "_idle_polls", "_logged_reasons", "_spec")

    def __init__(
        self, spec: CertificateSpec, deps: EnrollDependencies, api: CsrApi, deadline: Deadline
    ) -> None:
        self._spec = spec
        self._deps = deps
        self._api = api
        self._deadline = deadline
        self._began = deps.clock.boottime()
        self._idle_polls = 0
        self._logged_reasons: list[str] = []

    def run(self, validate_certificate: Trial) -> IssuedCredential:
        """Do all steps that are left."""
        phase = self._deps.phases.phase
        with phase("offer"):
            pending = self.resume() or self.begin()
        if pending.challenge is None:
            with phase("challenge"):
                pending = self.await_challenge(pending)
        if pending.answer is None:
            with phase("answer"):
                pending = self.make_answer(pending)
        with phase("certificate"):
            issued = self.await_certificate(pending)
        with phase("trial"):
            return self.validate_certificate(issued, pending, validate_certificate)

    def resume(self) -> PendingExchange | None:
        """Return the exchange on disk if it can still succeed. Raises `OfferUnanswered`."""
        pending = self._deps.store.load_pending(self._spec.fingerprint)
        if pending is None or not pending.is_live(self._deps.clock):
            return None
        if pending.challenge is None and self._age(pending.started_at) > OFFER_TTL_SECONDS:
            raise OfferUnanswered(f"offer {pending.offer_name}: no challenge in ten minutes")
        # Killed after its certificate was cached: the exchange would bring the same one again.
        cached = self._deps.store.load_credential()
        return None if cached is not None and cached.key_pair.key == pending.key else pending

    def begin(self) -> PendingExchange:
        """Make a key and the offer for it, and store them."""
        with self._deps.open_tpm(self._deadline) as tpm:
            endorsement_key, attestation_key = tpm.endorsement_key(), tpm.attestation_key()
        offer = evidence.Offer(
            ek_public=endorsement_key.public,
            ek_certificates=endorsement_key.certificates,
            ak_public=attestation_key.public,
            ak_certificate=attestation_key.certificate,
            ek_creation=attestation_key.endorsement_creation,
        )
        key = issued_certificate.new_key()
        pkcs10 = build_pkcs10(
            key,
            node_name=self._spec.node_name,
            provider_id=self._spec.provider_id,
            dns_names=[name for name in self._spec.names if isinstance(name, str)],
            ip_addresses=[name for name in self._spec.names if not isinstance(name, str)],
        )
        pending = PendingExchange(
            fingerprint=self._spec.fingerprint,
            boot_id=self._deps.clock.boot_id(),
            started_at=self._deps.clock.boottime(),
            offer_name=OFFER_PREFIX + self._deps.token_hex(),
            answer_name=ANSWER_PREFIX + self._deps.token_hex(),
            key=issued_certificate.key_pem(key),
            offer=encode_request(pkcs10, evidence.encode_attestation_data(offer)),
            offer_uid=None,
            challenge=None,
            challenge_seen=None,
            answer=None,
        )
        self._deps.store.save_pending(pending)
        return pending

    def await_challenge(self, pending: PendingExchange) -> PendingExchange:
        """Create the offer, or find the existing one; wait for its challenge and store it."""
        csr = self._retry_while_unavailable(lambda: self._create(pending.offer_name, pending.offer))
        while True:
            raise_if_rejected(csr)
            challenge = find_challenge(csr)
            if challenge is not None:
                seen = self._deps.clock.boottime()
                pending = replace(
                    pending, offer_uid=csr.uid, challenge=challenge, challenge_seen=seen
                )
                self._deps.store.save_pending(pending)
                return pending
            if self._age(pending.started_at) > OFFER_TTL_SECONDS:
                raise OfferUnanswered(f"offer {csr.spec.name}: {pending_reason(csr)}")
            csr = self._wait_for_change(csr)

    def make_answer(self, pending: PendingExchange) -> PendingExchange:
        """Open the challenge with the TPM, quote for it, and store the answer."""
        challenge = decode_challenge(pending.challenge or "")
        if self._is_challenge_old(pending):
            raise ExchangeExpired("its challenge was first seen too long ago to be answered")
        self._require_clock(challenge, pending)
        pkcs10, data = decode_request(pending.offer)
        offer = evidence.decode_attestation_data(data)
        with self._deps.open_tpm(self._deadline) as tpm:
            secret = tpm.activate_credential(challenge.credential_blob, challenge.encrypted_secret)
            extra_data = answer_extra_data(
                secret,
                name=pending.answer_name,
                pkcs10_sha256=sha256(pkcs10),
                expiration_seconds=self._spec.expiration_seconds,
                usages=self._spec.usages,
                members=MEMBERS,
            )
            quote = tpm.quote(challenge.pcrs, extra_data)
        answer = evidence.Answer(
            ek_public=offer.ek_public,
            ek_certificates=offer.ek_certificates,
            ak_public=offer.ak_public,
            ak_certificate=offer.ak_certificate,
            ek_creation=offer.ek_creation,
            challenge=evidence.ChallengeReference(
                uid=pending.offer_uid or "",
                issued_at=challenge.issued_at,
                key=challenge.key,
                members=MEMBERS,
            ),
            quote=quote.attest,
            signature=quote.signature,
            pcrs=quote.pcrs,
            event_log=self._deps.event_log() if challenge.event_log else None,
            pcr_signatures=(
                self._deps.pcr_signatures(challenge.pcrs) if challenge.pcr_signatures else None
            ),
        )
        pending = replace(
            pending, answer=encode_request(pkcs10, evidence.encode_attestation_data(answer))
        )
        self._deps.store.save_pending(pending)
        return pending

    def await_certificate(self, pending: PendingExchange) -> IssuedCertificate:
        """Create the answer, or find the existing one; wait for its certificate and verify it."""
        csr = self._create_answer(pending, pending.answer or b"")
        while csr.certificate is None:
            raise_if_rejected(csr)
            if self._age(pending.started_at) > EXCHANGE_TTL_SECONDS:
                raise ExchangeExpired(f"answer {csr.spec.name}: {pending_reason(csr)}")
            csr = self._wait_for_change(csr)
        raise_if_rejected(csr)
        now = self._deps.clock.now()
        return issued_certificate.verify_issued_certificate(
            csr.certificate, pending.key, self._spec, now
        )

    def validate_certificate(
        self, issued: IssuedCertificate, pending: PendingExchange, validate: Trial
    ) -> IssuedCredential:
        """Try the new certificate."""
        new = IssuedCredential(
            issued=issued,
            pair=KeyPair(certificate=issued.chain, key=pending.key),
            fingerprint=self._spec.fingerprint,
        )
        self._retry_while_unavailable(lambda: validate(new))
        return new

    def _require_clock(self, challenge: Challenge, pending: PendingExchange) -> None:
        """Require a clock that is not a day behind, before the answer causes a certificate.

        The node would discard a certificate whose validity begins in its future. A clock that is
        ahead by less than the certificate's lifetime does no harm.
        """
        issued_at = datetime.fromisoformat(challenge.issued_at).timestamp()
        signer_now = issued_at + self._age(pending.challenge_seen or 0)
        delay = signer_now - self._deps.clock.now()
        if delay > CLOCK_TOLERANCE_SECONDS:
            raise ClockSkewTooLarge(
                f"this node's clock is {delay / 3600:.0f} hours behind the signer's: correct it"
            )

    def _create_answer(self, pending: PendingExchange, request: bytes) -> Csr:
        """Create the answer; find the existing one if its challenge is too old for a new one."""

        def create_or_find() -> Csr:
            if not self._is_challenge_old(pending):
                return self._create(pending.answer_name, request)
            csr = self._api.get(pending.answer_name)
            if csr is None:
                raise ExchangeExpired("its challenge was first seen too long ago to be answered")
            return csr

        return self._retry_while_unavailable(create_or_find)

    def _create(self, name: str, request: bytes) -> Csr:
        csr_request = CsrRequest(
            name=name,
            signer_name=self._spec.signer_name,
            usages=tuple(sorted(self._spec.usages)),
            expiration_seconds=self._spec.expiration_seconds,
            request=request,
        )
        csr = self._api.create(csr_request)
        if csr.spec != csr_request:
            raise RequestNameConflict(f"a CSR named {name} exists, with other content")
        return csr

    def _wait_for_change(self, csr: Csr) -> Csr:
        """Wait for a change of a CSR. Raises `DeadlinePassed`, `RequestDeleted`."""
        limit = self._log_pending_reason(csr)
        if self._deadline.remaining() <= 0:
            raise DeadlinePassed(f"{csr.spec.name}: {pending_reason(csr)}")
        seconds = min(limit, self._deadline.remaining())
        began = self._deps.clock.boottime()
        try:
            changed = self._retry_while_unavailable(lambda: self._api.wait_for_change(csr, seconds))
        except DeadlinePassed:
            raise DeadlinePassed(f"{csr.spec.name}: {pending_reason(csr)}") from None
        if changed is None:
            raise RequestDeleted(f"{csr.spec.name} was deleted")
        no_news = replace(changed, resource_version=csr.resource_version) == csr
        self._throttle_idle_polls(idle=no_news and self._age(began) < MAX_BACKOFF_SECONDS)
        return changed

    def _log_pending_reason(self, csr: Csr) -> float:
        """Log each new reason for which the signer waits, so that a long wait is not silent.

        Return for how many seconds to watch the CSR: no longer than until a reason is logged.
        """
        reason = pending_reason(csr)
        is_new = reason != NOT_ANSWERED and reason not in self._logged_reasons
        if not is_new or len(self._logged_reasons) >= _MAX_LOGGED_REASONS:
            return WATCH_TIMEOUT_SECONDS
        quiet = QUIET_SECONDS - self._age(self._began)
        if quiet > 0:
            return quiet
        self._logged_reasons.append(reason)
        _logger.warning("%s: %s", csr.spec.name, reason)
        return WATCH_TIMEOUT_SECONDS

    def _throttle_idle_polls(self, *, idle: bool) -> None:
        """Pause after a watch that ended immediately without news; each pause is longer."""
        if idle:
            wait = min(self._pause(self._idle_polls), self._deadline.remaining())
            self._deps.clock.sleep(max(0.0, wait))
        self._idle_polls = self._idle_polls + 1 if idle else 0

    def _retry_while_unavailable(self, call: Callable[[], _T]) -> _T:
        """Repeat a call while the API server is unavailable and there is time."""
        failures = 0
        while True:
            try:
                return call()
            except ApiServerUnavailable:
                wait = self._pause(failures)
                if self._deadline.remaining() <= wait:
                    raise
            self._deps.clock.sleep(wait)
            failures += 1

    def _pause(self, failures: int) -> float:
        pause = backoff(failures, INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        return pause * (1 + self._deps.jitter())

    def _age(self, since: float) -> float:
        return self._deps.clock.boottime() - since

    def _is_challenge_old(self, pending: PendingExchange) -> bool:
        return self._age(pending.challenge_seen or 0) > CHALLENGE_TTL_SECONDS
