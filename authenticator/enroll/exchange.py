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
from authenticator.enroll.csr_status import challenge_of, require_undecided, waiting_for
from authenticator.enroll.issued_certificate import Issued
from authenticator.model import (
    Clock,
    Csr,
    CsrApi,
    CsrRequest,
    Deadline,
    KeyPair,
    Pending,
    Phases,
    Wanted,
)
from authenticator.state.store import Store
from authenticator.tpm.device import Tpm
from common import evidence
from common.binding import answer_extra_data
from common.csr import build_pkcs10, compose, split
from common.errors import (
    ApiServerUnavailable,
    DeadlinePassed,
    ExchangeExpired,
    OfferUnanswered,
    RequestTaken,
    RequestVanished,
    StartOver,
    StateFolderUnwritable,
)

_T = TypeVar("_T")

NAME_PREFIX: Final = "kubelet-tpm-"
PENDING_SECONDS: Final = 15 * 60
"""After this the keys of an exchange are discarded."""

OFFER_SECONDS: Final = 10 * 60
"""An offer that is unanswered for so long is replaced."""

CHALLENGE_SECONDS: Final = 4 * 60
"""A challenge is answered within this time of its first sight, or left."""

LOOK_SECONDS: Final = 30
"""How long a watch is waited for at once; then everything is looked at again."""

FIRST_PAUSE_SECONDS: Final = 0.25
LAST_PAUSE_SECONDS: Final = 5.0
"""How long the API server is left alone when it was not there, or told nothing at once; doubled
from the first to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """A certificate that has stood its trial, and its key."""

    issued: Issued
    pair: KeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The exchange's seams. `open_tpm` is only called when the TPM has something to do."""

    clock: Clock
    store: Store
    api: CsrApi
    trial: Callable[[KeyPair], None]
    """Raises StartOver leaves when the new certificate is not good for what it was wanted for, and
    ApiServerUnavailable when that has to be asked again."""
    open_tpm: Callable[[Deadline], AbstractContextManager[Tpm]]
    event_log: Callable[[], bytes | None]
    token_hex: Callable[[], str]
    """128 random bits in hex."""
    jitter: Callable[[], float]
    """A random number from 0 to 1."""
    phases: Phases


def run(wanted: Wanted, around: Surroundings, deadline: Deadline) -> Certified:
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
            with contextlib.suppress(StateFolderUnwritable):
                around.store.drop_pending()
                if too_old and deadline.remaining() > 0:
                    continue
            raise


def _once(wanted: Wanted, around: Surroundings, deadline: Deadline) -> Certified:
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
        return exchange.try_out(issued, pending)


class _Exchange:
    __slots__ = ("_around", "_deadline", "_in_vain", "_wanted")

    def __init__(self, wanted: Wanted, around: Surroundings, deadline: Deadline) -> None:
        self._wanted = wanted
        self._around = around
        self._deadline = deadline
        self._in_vain = self._pauses()

    def resume(self) -> Pending | None:
        """Return the exchange on disk if it can still end well."""
        pending = self._around.store.load_pending()
        if pending is None or pending.made_for != self._wanted.made_for:
            return None
        limit = OFFER_SECONDS if pending.challenge is None else PENDING_SECONDS
        if pending.boot_id != self._around.clock.boot_id() or self._age(pending.began) > limit:
            return None
        # Killed after its certificate was stored: it would only bring the same one again.
        cached = self._around.store.load_credential()
        return None if cached is not None and cached.pair.key == pending.key else pending

    def begin(self) -> Pending:
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
        pending = Pending(
            made_for=self._wanted.made_for,
            boot_id=self._around.clock.boot_id(),
            began=self._around.clock.boot(),
            offer_name=NAME_PREFIX + self._around.token_hex(),
            answer_name=NAME_PREFIX + self._around.token_hex(),
            key=issued_certificate.key_pem(key),
            offer=compose(pkcs10, evidence.encode(offer)),
            offer_uid=None,
            challenge=None,
            challenge_seen=None,
            answer=None,
        )
        self._around.store.save_pending(pending)
        return pending

    def await_challenge(self, pending: Pending) -> Pending:
        """File the offer, or find it filed; keep its challenge when there is one."""
        csr = self._file(pending.offer_name, pending.offer)
        while True:
            require_undecided(csr)
            challenge = challenge_of(csr)
            if challenge is not None:
                seen = self._around.clock.boot()
                pending = replace(
                    pending, offer_uid=csr.uid, challenge=challenge, challenge_seen=seen
                )
                self._around.store.save_pending(pending)
                return pending
            if self._age(pending.began) > OFFER_SECONDS:
                raise OfferUnanswered(f"offer {csr.spec.name}: {waiting_for(csr)}")
            csr = self._changed(csr)

    def make_answer(self, pending: Pending) -> Pending:
        """Open the challenge with the TPM, quote for it, and keep the answer."""
        challenge = evidence.decode_challenge(pending.challenge or "")
        if self._challenge_is_old(pending):
            raise ExchangeExpired("its challenge was first seen too long ago to be answered")
        pkcs10, data = split(pending.offer)
        offer = evidence.decode(data)
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
        pending = replace(pending, answer=compose(pkcs10, evidence.encode(answer)))
        self._around.store.save_pending(pending)
        return pending

    def await_certificate(self, pending: Pending) -> Issued:
        """File the answer, or find it filed; return its certificate when there is one."""
        csr = self._file_answer(pending, pending.answer or b"")
        while csr.certificate is None:
            require_undecided(csr)
            if self._age(pending.began) > PENDING_SECONDS:
                raise ExchangeExpired(f"answer {csr.spec.name}: {waiting_for(csr)}")
            csr = self._changed(csr)
        require_undecided(csr)
        now = self._around.clock.wall()
        return issued_certificate.check_issued(csr.certificate, pending.key, self._wanted, now)

    def try_out(self, issued: Issued, pending: Pending) -> Certified:
        """Put the new certificate to the trial."""
        pair = KeyPair(certificate=issued.chain, key=pending.key)
        self._patiently(lambda: self._around.trial(pair))
        return Certified(issued=issued, pair=pair)

    def _file_answer(self, pending: Pending, request: bytes) -> Csr:
        if not self._challenge_is_old(pending):
            return self._file(pending.answer_name, request)
        csr = self._patiently(lambda: self._around.api.get(pending.answer_name))
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
        csr = self._patiently(lambda: self._around.api.create(wanted))
        if csr.spec != wanted:
            raise RequestTaken(f"somebody else has filed a CSR named {name}")
        return csr

    def _changed(self, csr: Csr) -> Csr:
        """Wait for a change of a CSR. Raises DeadlinePassed, RequestVanished."""
        if self._deadline.remaining() <= 0:
            raise DeadlinePassed(f"{csr.spec.name}: {waiting_for(csr)}")
        seconds = min(LOOK_SECONDS, self._deadline.remaining())
        began = self._around.clock.boot()
        try:
            changed = self._patiently(lambda: self._around.api.changed(csr, seconds))
        except DeadlinePassed:
            raise DeadlinePassed(f"{csr.spec.name}: {waiting_for(csr)}") from None
        if changed is None:
            raise RequestVanished(f"{csr.spec.name} was deleted")
        nothing_new = replace(changed, resource_version=csr.resource_version) == csr
        self._pace(in_vain=nothing_new and self._age(began) < LAST_PAUSE_SECONDS)
        return changed

    def _pace(self, *, in_vain: bool) -> None:
        """Pause after a look that ended at once with nothing new, longer after each in a row."""
        if in_vain:
            wait = min(next(self._in_vain), self._deadline.remaining())
            self._around.clock.sleep(max(0.0, wait))
        else:
            self._in_vain = self._pauses()

    def _patiently(self, call: Callable[[], _T]) -> _T:
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
        pause = FIRST_PAUSE_SECONDS
        while True:
            yield pause * (1 + self._around.jitter())
            pause = min(pause * 2, LAST_PAUSE_SECONDS)

    def _age(self, since: float) -> float:
        return self._around.clock.boot() - since

    def _challenge_is_old(self, pending: Pending) -> bool:
        return self._age(pending.challenge_seen or 0) > CHALLENGE_SECONDS
