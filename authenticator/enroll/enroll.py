"""From a call to a credential: who asks the API server, when an exchange begins, what is kept.

One call at a time: all of this happens under the store's lock, and what another call has achieved
meanwhile is used. As whom the API server is asked: with the current certificate while it counts,
with the bootstrap credential when there is none or when it is refused. After a failure none begins
for a while, so that a node that cannot succeed does not flood the API server; the pause ends at
once when something that matters has changed. A valid certificate is only ever replaced by one that
was tried out.
"""

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

from authenticator.config.invocation import Invocation
from authenticator.enroll import exchange
from authenticator.errors import (
    BootstrapCredentialUnusable,
    CertificateNotAccepted,
    StateDirectoryUnwritable,
    Unauthorized,
)
from authenticator.model import (
    ApiCredential,
    CertificateSpec,
    Clock,
    CsrApi,
    Deadline,
    KeyPair,
    PhaseTimer,
    Server,
    Token,
)
from authenticator.providers.provider import Identity
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, freshness
from authenticator.state.store import Store
from authenticator.tpm.device import Tpm
from common.names import CLIENT_USAGES, NODE_USER_PREFIX

_REFUSED: Final = "the API server does not accept the current certificate (401)"
_logger = logging.getLogger(__name__)


class Trigger(Enum):
    """Why a credential is wanted."""

    REQUIRED = "needed"
    """There is none that could be served, or its renewal is due."""
    UNAUTHORIZED_SUSPECTED = "suspected"
    """It was asked for again early, as after a 401: it is tried, and replaced when refused."""
    FORCED = "demanded"
    """Somebody wants a new one now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollDependencies:
    """The seams of a call."""

    clock: Clock
    store: Store
    connect: Callable[[Server, ApiCredential, Deadline], CsrApi]
    open_tpm: Callable[[Deadline], AbstractContextManager[Tpm]]
    load_bootstrap: Callable[[Path], ApiCredential]
    query_provider: Callable[[str, Deadline], Identity]
    event_log: Callable[[], bytes | None]
    token_hex: Callable[[], str]
    jitter: Callable[[], float]
    phases: PhaseTimer

    def exchange_dependencies(
        self, api: CsrApi, trial: Callable[[KeyPair], None]
    ) -> exchange.ExchangeDependencies:
        """Return the seams of an exchange, for one requester and one kind of certificate."""
        return exchange.ExchangeDependencies(
            clock=self.clock,
            store=self.store,
            api=api,
            validate_certificate=trial,
            open_tpm=self.open_tpm,
            event_log=self.event_log,
            token_hex=self.token_hex,
            jitter=self.jitter,
            phases=self.phases,
        )


def obtain_credential(
    call: Invocation, world: EnrollDependencies, deadline: Deadline, occasion: Trigger
) -> Credential:
    """Return a credential for the call: that of another call, the one on trial, or a new one.

    The caller holds the store's lock. Raises leaves of common/errors; a failure is kept as a
    cooldown where that helps.
    """
    return _Enrollment(call, world, deadline).run(occasion)


class _Enrollment:
    """One enrolment, under the lock."""

    __slots__ = ("_call", "_deadline", "_world")

    def __init__(self, call: Invocation, world: EnrollDependencies, deadline: Deadline) -> None:
        self._call = call
        self._world = world
        self._deadline = deadline

    def run(self, occasion: Trigger) -> Credential:
        """Return what there is if it will do, else a new credential."""
        kept = self._world.store.load_credential()
        current = self._call.matches(kept)
        suspected = occasion is Trigger.UNAUTHORIZED_SUSPECTED and current is not None
        refused = suspected and current is not None and not self._still_accepted(current)
        if current is not None and self._is_sufficient(current, occasion) and not refused:
            return current
        self._resolve_identity()
        sources = self._sources(None if refused else kept)
        if occasion is not Trigger.FORCED:
            cooldown.check(self._world.store, self._world.clock, sources.digest)
        try:
            return self._store(self._enroll_with_fallback(sources, refused=refused))
        except Exception as error:
            world = self._world
            cooldown.start(error, world.store, world.clock, sources.digest, world.jitter())
            raise

    def _is_sufficient(self, current: Credential, occasion: Trigger) -> bool:
        fresh = freshness(current, self._world.clock.now()) is Freshness.FRESH
        return fresh and occasion is not Trigger.FORCED

    def _still_accepted(self, current: Credential) -> bool:
        """Try the credential: False only when the API server says 401 to it."""
        try:
            with self._world.phases.phase("trial of the current certificate"):
                self._connect(current.key_pair).self_subject_review()
        except Unauthorized:
            _logger.warning(_REFUSED)
            return False
        return True

    def _resolve_identity(self) -> None:
        """Ask the provider, if the settings name one: now that an exchange is to begin."""
        settings = self._call.settings

        def ask(provider: str) -> Identity:
            with self._world.phases.phase("provider"):
                return self._world.query_provider(provider, self._deadline)

        self._call = replace(self._call, settings=settings.with_provider_identity(ask))

    def _sources(self, kept: Credential | None) -> "_Sources":
        """Find as whom the API server may be asked."""
        pair = None
        if (
            kept is not None
            and kept.node_name == self._call.settings.node_name
            and freshness(kept, self._world.clock.now()) is not Freshness.EXPIRED
        ):
            pair = kept.key_pair
        bootstrap: ApiCredential | BootstrapCredentialUnusable
        try:
            bootstrap = self._world.load_bootstrap(self._call.settings.bootstrap_kubeconfig)
        except BootstrapCredentialUnusable as error:
            bootstrap = error
        return _Sources(
            certificate=pair,
            bootstrap=bootstrap,
            digest=self._digest(_identity(pair), _identity(bootstrap)),
        )

    def _enroll_with_fallback(
        self, sources: "_Sources", *, refused: bool
    ) -> exchange.IssuedCredential:
        """Run the exchange with the certificate, and with the bootstrap credential if refused."""
        path = self._call.settings.bootstrap_kubeconfig
        if sources.certificate is not None:
            try:
                return self._exchange(sources.certificate)
            except Unauthorized:
                refused = True
                _logger.warning("%s: the bootstrap credential is used", _REFUSED)
        told = _REFUSED if refused else "there is no certificate"
        if isinstance(sources.bootstrap, BootstrapCredentialUnusable):
            # Where nothing was sent no cooldown follows; after a 401 one has to.
            raise (Unauthorized if refused else BootstrapCredentialUnusable)(
                f"{told}, and no bootstrap credential to get one with: {sources.bootstrap.message};"
                f" put a kubeconfig with a new bootstrap token (kubeadm token create) at {path}"
            )
        try:
            return self._exchange(sources.bootstrap)
        except Unauthorized as error:
            raise Unauthorized(
                f"{told}, and the API server does not accept the bootstrap credential (401);"
                f" put a new bootstrap token (kubeadm token create) into {path}"
            ) from error

    def _exchange(self, requester: ApiCredential) -> exchange.IssuedCredential:
        settings = self._call.settings
        provider_id = settings.required_provider_id()
        wanted = CertificateSpec(
            node_name=settings.node_name,
            provider_id=provider_id,
            signer_name=settings.signer_name,
            usages=CLIENT_USAGES,
            names=(),
            expiration_seconds=settings.expiration_seconds,
            fingerprint=self._digest(provider_id, _identity(requester)),
        )
        around = self._world.exchange_dependencies(
            self._connect(requester), self._verify_with_api_server
        )
        return exchange.run_exchange(wanted, around, self._deadline)

    def _verify_with_api_server(self, pair: KeyPair) -> None:
        """Ask the API server who the new certificate is: only the node itself will do."""
        try:
            name = self._connect(pair).self_subject_review()
        except Unauthorized as error:
            raise CertificateNotAccepted(
                "the API server refuses the new certificate: is the signer's CA its client CA?"
            ) from error
        if name != NODE_USER_PREFIX + self._call.settings.node_name:
            raise CertificateNotAccepted("the API server takes the new certificate for another's")

    def _connect(self, requester: ApiCredential) -> CsrApi:
        return self._world.connect(self._call.exec_info.server, requester, self._deadline)

    def _store(self, certified: exchange.IssuedCredential) -> Credential:
        """Put the new credential into the cache; a full disk does not keep it from being served."""
        credential = Credential(
            node_name=self._call.settings.node_name,
            key_pair=certified.pair,
            not_before=certified.issued.not_before,
            not_after=certified.issued.not_after,
            received_at=int(self._world.clock.now()),
            exec_info=self._call.exec_info.raw,
            arguments=self._call.arguments,
            api_version=self._call.exec_info.api_version,
        )
        try:
            self._world.store.save_credential(credential)
            self._world.store.delete_pending()
            self._world.store.save_cooldown(None)
        except StateDirectoryUnwritable as error:
            _logger.warning("the new credential is served, but not kept: %s", error)
        return credential

    def _digest(self, *parts: str) -> str:
        """Name what was tried: this call, and as whom."""
        settings = self._call.settings
        names = (settings.node_name, settings.signer_name, settings.expiration_seconds)
        listed = json.dumps([*names, *parts])
        return sha256(listed.encode() + self._call.exec_info.raw).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """As whom the API server may be asked, and a name for all of it."""

    certificate: KeyPair | None
    bootstrap: ApiCredential | BootstrapCredentialUnusable
    digest: str


def _identity(source: ApiCredential | BootstrapCredentialUnusable | None) -> str:
    """Tell one source from another; a secret when it is a token."""
    match source:
        case Token():
            return source.token
        case KeyPair():
            return source.certificate.hex()
        case BootstrapCredentialUnusable():
            return source.message
        case None:
            return ""
