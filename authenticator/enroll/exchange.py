"""One exchange with the signer, from the offer to a certificate that has proved its worth.

A machine of small steps over its seams: each step looks at what is on disk and at the API server,
and does the one thing that is next. What it is about to send is on disk first, so a kill between
any two steps costs nothing: the next call takes up the same exchange by the names of its CSRs.

Limits count in boot time from first sight, since the clocks of node and signer may differ
(docs/protocol.md section 3). Nothing that comes from the API server is trusted with more than this
exchange: a false challenge makes a false answer, and a certificate is checked, then tried.

Client and serving certificates differ in what is asked for, and in the trial.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from authenticator.enroll import issued_certificate
from authenticator.enroll.csr_status import find_challenge, pending_reason, raise_if_rejected
from authenticator.enroll.issued_certificate import IssuedCertificate
from authenticator.errors import (
    DeadlinePassed,
    ExchangeExpired,
    OfferUnanswered,
    RequestDeleted,
    RequestNameConflict,
    StateDirectoryUnwritable,
)
from authenticator.model import (
    CertificateSpec,
    Clock,
    Csr,
    CsrApi,
    CsrRequest,
    Deadline,
    KeyPair,
    PendingExchange,
    PhaseTimer,
)
from authenticator.state.store import Store
from authenticator.tpm.device import Tpm
from common import evidence
from common.binding import answer_extra_data
from common.csr import build_pkcs10, decode_request, encode_request
from common.errors import ApiServerUnavailable, StartOver

_T = TypeVar("_T")

NAME_PREFIX: Final = "kubelet-tpm-"
EXCHANGE_TTL_SECONDS: Final = 15 * 60
"""After this the keys of an exchange are discarded."""

OFFER_TTL_SECONDS: Final = 10 * 60
"""An offer that is unanswered for so long is replaced."""

CHALLENGE_TTL_SECONDS: Final = 4 * 60
"""A challenge is answered within this time of its first sight, or left."""

WATCH_TIMEOUT_SECONDS: Final = 30
"""How long a watch is waited for at once; then everything is looked at again."""

INITIAL_BACKOFF_SECONDS: Final = 0.25
MAX_BACKOFF_SECONDS: Final = 5.0
"""How long the API server is left alone when it was not there, or told nothing at once; doubled
from the first to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A certificate that has stood its trial, and its key."""

    issued: IssuedCertificate
    pair: KeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDependencies:
    """The exchange's seams. `open_tpm` is only called when the TPM has something to do."""

    clock: Clock
    store: Store
    api: CsrApi
    validate_certificate: Callable[[KeyPair], None]
    """Raises StartOver leaves when the new certificate is not good for what it was wanted for, and
    ApiServerUnavailable when that has to be asked again."""
    open_tpm: Callable[[Deadline], AbstractContextManager[Tpm]]
    event_log: Callable[[], bytes | None]
    token_hex: Callable[[], str]
    """128 random bits in hex."""
    jitter: Callable[[], float]
    """A random number from 0 to 1."""
    phases: PhaseTimer


def run_exchange(
    wanted: CertificateSpec, around: ExchangeDependencies, deadline: Deadline
) -> IssuedCredential:
    """Begin an exchange or go on with the one on disk, until it ends or the deadline passes.

    One that grew too old is nobody's verdict: the next begins at once, as long as there is time.
    The caller holds the lock, and drops the exchange from disk when the credential is stored.
    Raises what the seams raise, DeadlinePassed (with what the signer waits for), StartOver leaves.
    """
    while True:
        try:
            return _once(wanted, around, deadline)
        except StartOver as error:
            too_old = isinstance(error, ExchangeExpired | OfferUnanswered)
            with contextlib.suppress(StateDirectoryUnwritable):
                around.store.delete_pending()
                if too_old and deadline.remaining() > 0:
                    continue
            raise


def _once(
    wanted: CertificateSpec, around: ExchangeDependencies, deadline: Deadline
) -> IssuedCredential:
    exchange = _Exchange(wanted, around, deadline)
    with around.phases.phase("offer"):
        pending = exchange.resume() or exchange.begin()
    if pending.challenge is None:
        with around.phases.phase("challenge"):
            pending = exchange.await_challenge(pending)
    if pending.answer is None:
        with around.phases.phase("answer"):
            pending = exchange.make_answer(pending)
    with around.phases.phase("certificate"):
        issued = exchange.await_certificate(pending)
    with around.phases.phase("trial"):
        return exchange.validate_certificate(issued, pending)


class _Exchange:
    __slots__ = ("_around", "_deadline", "_in_vain", "_wanted")

    def __init__(
        self, wanted: CertificateSpec, around: ExchangeDependencies, deadline: Deadline
    ) -> None:
        self._wanted = wanted
        self._around = around
        self._deadline = deadline
        self._in_vain = self._pauses()

    def resume(self) -> PendingExchange | None:
        """Return the exchange on disk if it can still end well."""
        pending = self._around.store.load_pending()
        if pending is None or pending.fingerprint != self._wanted.fingerprint:
            return None
        limit = OFFER_TTL_SECONDS if pending.challenge is None else EXCHANGE_TTL_SECONDS
        if pending.boot_id != self._around.clock.boot_id() or self._age(pending.started_at) > limit:
            return None
        # Killed after its certificate was stored: it would only bring the same one again.
        cached = self._around.store.load_credential()
        return None if cached is not None and cached.key_pair.key == pending.key else pending

    def begin(self) -> PendingExchange:
        """Make a key and the offer for it, and keep them."""
        with self._around.open_tpm(self._deadline) as tpm:
            found = tpm.endorsement_key()
            offer = evidence.Offer(
                ek_public=found.public,
                ek_certificates=found.certificates,
                ak_public=tpm.attestation_key(),
            )
        key = issued_certificate.new_key()
        pkcs10 = build_pkcs10(
            key,
            node_name=self._wanted.node_name,
            provider_id=self._wanted.provider_id,
            dns_names=[name for name in self._wanted.names if isinstance(name, str)],
            ip_addresses=[name for name in self._wanted.names if not isinstance(name, str)],
        )
        pending = PendingExchange(
            fingerprint=self._wanted.fingerprint,
            boot_id=self._around.clock.boot_id(),
            started_at=self._around.clock.boottime(),
            offer_name=NAME_PREFIX + self._around.token_hex(),
            answer_name=NAME_PREFIX + self._around.token_hex(),
            key=issued_certificate.key_pem(key),
            offer=encode_request(pkcs10, evidence.encode_attestation_data(offer)),
            offer_uid=None,
            challenge=None,
            challenge_seen=None,
            answer=None,
        )
        self._around.store.save_pending(pending)
        return pending

    def await_challenge(self, pending: PendingExchange) -> PendingExchange:
        """File the offer, or find it filed; keep its challenge when there is one."""
        csr = self._file(pending.offer_name, pending.offer)
        while True:
            raise_if_rejected(csr)
            challenge = find_challenge(csr)
            if challenge is not None:
                seen = self._around.clock.boottime()
                pending = replace(
                    pending, offer_uid=csr.uid, challenge=challenge, challenge_seen=seen
                )
                self._around.store.save_pending(pending)
                return pending
            if self._age(pending.started_at) > OFFER_TTL_SECONDS:
                raise OfferUnanswered(f"offer {csr.spec.name}: {pending_reason(csr)}")
            csr = self._wait_for_change(csr)

    def make_answer(self, pending: PendingExchange) -> PendingExchange:
        """Open the challenge with the TPM, quote for it, and keep the answer."""
        challenge = evidence.decode_challenge(pending.challenge or "")
        if self._challenge_is_old(pending):
            raise ExchangeExpired("its challenge was first seen too long ago to be answered")
        pkcs10, data = decode_request(pending.offer)
        offer = evidence.decode_attestation_data(data)
        with self._around.open_tpm(self._deadline) as tpm:
            secret = tpm.activate_credential(challenge.credential_blob, challenge.encrypted_secret)
            extra_data = answer_extra_data(
                secret,
                name=pending.answer_name,
                expiration_seconds=self._wanted.expiration_seconds,
                usages=self._wanted.usages,
            )
            quote = tpm.quote(challenge.pcrs, extra_data)
        answer = evidence.Answer(
            ek_public=offer.ek_public,
            ek_certificates=offer.ek_certificates,
            ak_public=offer.ak_public,
            challenge=evidence.ChallengeReference(
                uid=pending.offer_uid or "", issued_at=challenge.issued_at, key=challenge.key
            ),
            quote=quote.attest,
            signature=quote.signature,
            pcrs=quote.pcrs,
            event_log=self._around.event_log() if challenge.event_log else None,
        )
        pending = replace(
            pending, answer=encode_request(pkcs10, evidence.encode_attestation_data(answer))
        )
        self._around.store.save_pending(pending)
        return pending

    def await_certificate(self, pending: PendingExchange) -> IssuedCertificate:
        """File the answer, or find it filed; return its certificate when there is one."""
        csr = self._file_answer(pending, pending.answer or b"")
        while csr.certificate is None:
            raise_if_rejected(csr)
            if self._age(pending.started_at) > EXCHANGE_TTL_SECONDS:
                raise ExchangeExpired(f"answer {csr.spec.name}: {pending_reason(csr)}")
            csr = self._wait_for_change(csr)
        raise_if_rejected(csr)
        now = self._around.clock.now()
        return issued_certificate.verify_issued_certificate(
            csr.certificate, pending.key, self._wanted, now
        )

    def validate_certificate(
        self, issued: IssuedCertificate, pending: PendingExchange
    ) -> IssuedCredential:
        """Put the new certificate to the trial."""
        pair = KeyPair(certificate=issued.chain, key=pending.key)
        self._retry_while_unavailable(lambda: self._around.validate_certificate(pair))
        return IssuedCredential(issued=issued, pair=pair)

    def _file_answer(self, pending: PendingExchange, request: bytes) -> Csr:
        if not self._challenge_is_old(pending):
            return self._file(pending.answer_name, request)
        csr = self._retry_while_unavailable(lambda: self._around.api.get(pending.answer_name))
        if csr is None:
            raise ExchangeExpired("its challenge was first seen too long ago to be answered")
        return csr

    def _file(self, name: str, request: bytes) -> Csr:
        wanted = CsrRequest(
            name=name,
            signer_name=self._wanted.signer_name,
            usages=tuple(sorted(self._wanted.usages)),
            expiration_seconds=self._wanted.expiration_seconds,
            request=request,
        )
        csr = self._retry_while_unavailable(lambda: self._around.api.create(wanted))
        if csr.spec != wanted:
            raise RequestNameConflict(f"somebody else has filed a CSR named {name}")
        return csr

    def _wait_for_change(self, csr: Csr) -> Csr:
        """Wait for a change of a CSR. Raises DeadlinePassed, RequestDeleted."""
        if self._deadline.remaining() <= 0:
            raise DeadlinePassed(f"{csr.spec.name}: {pending_reason(csr)}")
        seconds = min(WATCH_TIMEOUT_SECONDS, self._deadline.remaining())
        began = self._around.clock.boottime()
        try:
            changed = self._retry_while_unavailable(
                lambda: self._around.api.wait_for_change(csr, seconds)
            )
        except DeadlinePassed:
            raise DeadlinePassed(f"{csr.spec.name}: {pending_reason(csr)}") from None
        if changed is None:
            raise RequestDeleted(f"{csr.spec.name} was deleted")
        nothing_new = replace(changed, resource_version=csr.resource_version) == csr
        self._throttle_idle_polls(in_vain=nothing_new and self._age(began) < MAX_BACKOFF_SECONDS)
        return changed

    def _throttle_idle_polls(self, *, in_vain: bool) -> None:
        """Pause after a look that ended at once with nothing new, longer after each in a row."""
        if in_vain:
            wait = min(next(self._in_vain), self._deadline.remaining())
            self._around.clock.sleep(max(0.0, wait))
        else:
            self._in_vain = self._pauses()

    def _retry_while_unavailable(self, call: Callable[[], _T]) -> _T:
        """Call again while the API server is away and there is time."""
        pauses = self._pauses()
        while True:
            try:
                return call()
            except ApiServerUnavailable:
                wait = next(pauses)
                if self._deadline.remaining() <= wait:
                    raise
                self._around.clock.sleep(wait)

    def _pauses(self) -> Iterator[float]:
        """Yield how many seconds to leave the API server alone, longer each time."""
        pause = INITIAL_BACKOFF_SECONDS
        while True:
            yield pause * (1 + self._around.jitter())
            pause = min(pause * 2, MAX_BACKOFF_SECONDS)

    def _age(self, since: float) -> float:
        return self._around.clock.boottime() - since

    def _challenge_is_old(self, pending: PendingExchange) -> bool:
        return self._age(pending.challenge_seen or 0) > CHALLENGE_TTL_SECONDS
