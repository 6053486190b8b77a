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

from authenticator.config.exec_info import ExecInfo
from authenticator.config.settings import Settings
from authenticator.enroll import exchange
from authenticator.model import (
    Clock,
    CsrApi,
    Deadline,
    KeyPair,
    Phases,
    Requester,
    Server,
    Token,
    Wanted,
)
from authenticator.providers.provider import Identity
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, assess
from authenticator.state.store import Store
from authenticator.tpm.device import Tpm
from common.errors import (
    BootstrapCredentialUnusable,
    CertificateNotAccepted,
    CredentialRefused,
    StateFolderUnwritable,
)
from common.names import CLIENT_USAGES, NODE_USER_PREFIX

_REFUSED: Final = "the API server does not accept the current certificate (401)"
_logger = logging.getLogger(__name__)


class Occasion(Enum):
    """Why a credential is wanted."""

    NEEDED = "needed"
    """There is none that could be served, or its renewal is due."""
    SUSPECTED = "suspected"
    """It was asked for again early, as after a 401: it is tried, and replaced when refused."""
    DEMANDED = "demanded"
    """Somebody wants a new one now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call asks for."""

    exec_info: ExecInfo
    settings: Settings
    arguments: tuple[str, ...]

    def served_by(self, credential: Credential | None) -> Credential | None:
        """Return the credential if it was made for exactly this exec info, and for this node."""
        if (
            credential is not None
            and credential.exec_info == self.exec_info.raw
            and self.settings.is_for(credential.node_name)
        ):
            return credential
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The seams of a call."""

    clock: Clock
    store: Store
    connect: Callable[[Server, Requester, Deadline], CsrApi]
    open_tpm: Callable[[Deadline], AbstractContextManager[Tpm]]
    load_bootstrap: Callable[[Path], Requester]
    ask_provider: Callable[[str, Deadline], Identity]
    event_log: Callable[[], bytes | None]
    token_hex: Callable[[], str]
    jitter: Callable[[], float]
    phases: Phases

    def surroundings(self, api: CsrApi, trial: Callable[[KeyPair], None]) -> exchange.Surroundings:
        """Return the seams of an exchange, for one requester and one kind of certificate."""
        return exchange.Surroundings(
            clock=self.clock,
            store=self.store,
            api=api,
            trial=trial,
            open_tpm=self.open_tpm,
            event_log=self.event_log,
            token_hex=self.token_hex,
            jitter=self.jitter,
            phases=self.phases,
        )


def obtain(call: Call, world: World, deadline: Deadline, occasion: Occasion) -> Credential:
    """Return a credential for the call: that of another call, the one on trial, or a new one.

    The caller holds the store's lock. Raises leaves of common/errors; a failure is kept as a
    cooldown where that helps.
    """
    return _Enrolment(call, world, deadline).run(occasion)


class _Enrolment:
    """One enrolment, under the lock."""

    __slots__ = ("_call", "_deadline", "_world")

    def __init__(self, call: Call, world: World, deadline: Deadline) -> None:
        self._call = call
        self._world = world
        self._deadline = deadline

    def run(self, occasion: Occasion) -> Credential:
        """Return what there is if it will do, else a new credential."""
        kept = self._world.store.load_credential()
        current = self._call.served_by(kept)
        suspected = occasion is Occasion.SUSPECTED and current is not None
        refused = suspected and current is not None and not self._accepted(current)
        if current is not None and self._will_do(current, occasion) and not refused:
            return current
        self._settle()
        sources = self._sources(None if refused else kept)
        if occasion is not Occasion.DEMANDED:
            cooldown.require_none(self._world.store, self._world.clock, sources.digest)
        try:
            return self._keep(self._first_accepted(sources, refused=refused))
        except Exception as error:
            world = self._world
            cooldown.keep(error, world.store, world.clock, sources.digest, world.jitter())
            raise

    def _will_do(self, current: Credential, occasion: Occasion) -> bool:
        fresh = assess(current, self._world.clock.wall()) is Freshness.FRESH
        return fresh and occasion is not Occasion.DEMANDED

    def _accepted(self, current: Credential) -> bool:
        """Try the credential: False only when the API server says 401 to it."""
        try:
            with self._world.phases.phase("trial of the current certificate"):
                self._connect(current.pair).whoami()
        except CredentialRefused:
            _logger.warning(_REFUSED)
            return False
        return True

    def _settle(self) -> None:
        """Ask the provider, if the settings name one: now that an exchange is to begin."""
        settings = self._call.settings

        def ask(provider: str) -> Identity:
            with self._world.phases.phase("provider"):
                return self._world.ask_provider(provider, self._deadline)

        self._call = replace(self._call, settings=settings.settled(ask))

    def _sources(self, kept: Credential | None) -> "_Sources":
        """Find as whom the API server may be asked."""
        pair = None
        if (
            kept is not None
            and kept.node_name == self._call.settings.node_name
            and assess(kept, self._world.clock.wall()) is not Freshness.EXPIRED
        ):
            pair = kept.pair
        bootstrap: Requester | BootstrapCredentialUnusable
        try:
            bootstrap = self._world.load_bootstrap(self._call.settings.bootstrap_kubeconfig)
        except BootstrapCredentialUnusable as error:
            bootstrap = error
        return _Sources(
            certificate=pair,
            bootstrap=bootstrap,
            digest=self._digest(_identity(pair), _identity(bootstrap)),
        )

    def _first_accepted(self, sources: "_Sources", *, refused: bool) -> exchange.Certified:
        """Run the exchange with the certificate, and with the bootstrap credential if refused."""
        path = self._call.settings.bootstrap_kubeconfig
        if sources.certificate is not None:
            try:
                return self._exchange(sources.certificate)
            except CredentialRefused:
                refused = True
                _logger.warning("%s: the bootstrap credential is used", _REFUSED)
        told = _REFUSED if refused else "there is no certificate"
        if isinstance(sources.bootstrap, BootstrapCredentialUnusable):
            # Where nothing was sent no cooldown follows; after a 401 one has to.
            raise (CredentialRefused if refused else BootstrapCredentialUnusable)(
                f"{told}, and no bootstrap credential to get one with: {sources.bootstrap.message};"
                f" put a kubeconfig with a new bootstrap token (kubeadm token create) at {path}"
            )
        try:
            return self._exchange(sources.bootstrap)
        except CredentialRefused as error:
            raise CredentialRefused(
                f"{told}, and the API server does not accept the bootstrap credential (401);"
                f" put a new bootstrap token (kubeadm token create) into {path}"
            ) from error

    def _exchange(self, requester: Requester) -> exchange.Certified:
        settings = self._call.settings
        provider_id = settings.required_provider_id()
        wanted = Wanted(
            node_name=settings.node_name,
            provider_id=provider_id,
            signer_name=settings.signer_name,
            usages=CLIENT_USAGES,
            names=(),
            expiration_seconds=settings.expiration_seconds,
            made_for=self._digest(provider_id, _identity(requester)),
        )
        around = self._world.surroundings(self._connect(requester), self._try_out)
        return exchange.run(wanted, around, self._deadline)

    def _try_out(self, pair: KeyPair) -> None:
        """Ask the API server who the new certificate is: only the node itself will do."""
        try:
            name = self._connect(pair).whoami()
        except CredentialRefused as error:
            raise CertificateNotAccepted(
                "the API server refuses the new certificate: is the signer's CA its client CA?"
            ) from error
        if name != NODE_USER_PREFIX + self._call.settings.node_name:
            raise CertificateNotAccepted("the API server takes the new certificate for another's")

    def _connect(self, requester: Requester) -> CsrApi:
        return self._world.connect(self._call.exec_info.server, requester, self._deadline)

    def _keep(self, certified: exchange.Certified) -> Credential:
        """Put the new credential into the cache; a full disk does not keep it from being served."""
        credential = Credential(
            node_name=self._call.settings.node_name,
            pair=certified.pair,
            not_before=certified.issued.not_before,
            not_after=certified.issued.not_after,
            received=int(self._world.clock.wall()),
            exec_info=self._call.exec_info.raw,
            arguments=self._call.arguments,
            api_version=self._call.exec_info.api_version,
        )
        try:
            self._world.store.save_credential(credential)
            self._world.store.drop_pending()
            self._world.store.save_cooldown(None)
        except StateFolderUnwritable as error:
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
    bootstrap: Requester | BootstrapCredentialUnusable
    digest: str


def _identity(source: Requester | BootstrapCredentialUnusable | None) -> str:
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
