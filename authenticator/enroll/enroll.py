"""Decides whether a call needs a new credential, and which credential requests it.

Everything here runs under the store's lock, and uses what another call achieved meanwhile. A
request to the API server is made with the current certificate while that is valid, and with the
bootstrap credential when no certificate exists, the API server refuses it, or the signer no longer
knows it, as on a machine that was restored from a snapshot. The cluster's entry credential is the
last one: it is used when there is no bootstrap credential, or that is refused as well. After a
failure, a cooldown keeps a node that cannot succeed from flooding the API server. A new certificate
replaces a valid one only after the API server accepted it.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from authenticator.config.invocation import Invocation
from authenticator.enroll import trial
from authenticator.enroll.csr_status import CREDENTIAL_UNKNOWN
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.enroll.fingerprint import digest, identity, relevant_settings, with_fingerprint
from authenticator.errors import (
    BootstrapCredentialUnusable,
    ClientCertificateUnusable,
    RequestDenied,
    StateDirectoryUnwritable,
    Unauthorized,
)
from authenticator.late_imports import late_imports
from authenticator.model import ApiCredential, CertificateSpec, CsrApi, Deadline
from authenticator.providers.provider import Identity
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, freshness
from common.errors import AttestationError
from common.names import CLIENT_USAGES

if TYPE_CHECKING:
    from authenticator.enroll import exchange

MAX_KNOWN_CALLS: Final = 8
_REFUSED: Final = "the API server does not accept the current certificate (401)"
_UNKNOWN: Final = "the signer has issued other certificates to this node since the current one"
_logger = logging.getLogger(__name__)


class Trigger(Enum):
    """Why a credential is requested."""

    REQUIRED = "required"
    """A call has no credential to return, so any certificate that works is sufficient."""
    JOIN = "join"
    """A kubeconfig is about to name this machine: a certificate of this machine is sufficient."""
    RENEWAL_DUE = "renewal-due"
    """The renewal point has passed, or the certificate was obtained for another exec info."""
    UNAUTHORIZED_SUSPECTED = "unauthorized-suspected"
    """A process asked again early, as after a 401: try the certificate, replace it if refused."""
    FORCED = "forced"
    """An operator wants a new certificate now."""


def obtain_credential(
    invocation: Invocation, deps: EnrollDependencies, deadline: Deadline, trigger: Trigger
) -> Credential:
    """Return a credential for the call: the cached one while that is sufficient, else a new one.

    The caller holds the store's lock. Raises `AttestationError` leaves; a failure that may repeat
    starts a cooldown.
    """
    return _Enrollment(invocation, deps, deadline).run(trigger)


class _Enrollment:
    """One enrollment, under the lock."""

    __slots__ = ("_cached", "_current", "_deadline", "_deps", "_invocation")

    def __init__(
        self, invocation: Invocation, deps: EnrollDependencies, deadline: Deadline
    ) -> None:
        self._invocation = invocation
        self._deps = deps
        self._deadline = deadline
        self._cached = deps.store.load_credential()
        self._current: Credential | None = None

    def run(self, trigger: Trigger) -> Credential:
        """Return the cached credential if it is sufficient, else enroll."""
        if trigger is Trigger.JOIN:
            self._resolve_identity(None)
            self._ignore_other_machine()
        current = self._current = self._invocation.matches(self._cached)
        refusal = None if current is None else self._find_refusal(current, trigger)
        if current is not None and refusal is None and self._is_sufficient(current, trigger):
            return current
        sources = self._sources(refused=refusal is not None)
        if trigger is not Trigger.FORCED:
            cooldown.check(self._deps.store, self._deps.clock, sources.fingerprint)
        self._resolve_identity(current)
        try:
            new = self._enroll_with_fallback(sources, refusal)
            return self._store(new, current, trigger)
        except Exception as error:
            self._start_cooldown(error, sources.fingerprint)
            raise

    def _find_refusal(self, current: Credential, trigger: Trigger) -> AttestationError | None:
        """Try a certificate that may not work any more; return why it cannot be used, else None.

        The node's clock alone never makes a certificate worthless: it may be days ahead.
        """
        expired = self._freshness(current) is Freshness.EXPIRED
        if not expired and trigger is not Trigger.UNAUTHORIZED_SUSPECTED:
            return None
        fingerprint = self._sources(refused=True).fingerprint
        if trigger is not Trigger.FORCED:  # refused a moment ago: do not ask again
            cooldown.check(self._deps.store, self._deps.clock, fingerprint)
        try:
            with self._deps.phases.phase("trial of the current certificate"):
                accepted = trial.is_accepted(self._connect(current.key_pair))
        except ClientCertificateUnusable as error:
            _logger.warning("the cached certificate is not used: %s", error.message)
            return error
        except Exception as error:
            self._start_cooldown(error, fingerprint)
            raise
        if not accepted:
            _logger.warning(_REFUSED)
            return Unauthorized(_REFUSED)
        if expired:
            _logger.warning(
                "the certificate has expired by this node's clock, but the API server accepts it:"
                " correct the clock"
            )
        return None

    def _start_cooldown(self, error: Exception, fingerprint: str) -> None:
        deps = self._deps
        cooldown.start(error, deps.store, deps.clock, fingerprint, deps.jitter())

    def _is_sufficient(self, current: Credential, trigger: Trigger) -> bool:
        match trigger:
            case Trigger.REQUIRED | Trigger.JOIN:
                return True
            case Trigger.RENEWAL_DUE:
                known = self._invocation.is_known_to(current)
                return known and self._freshness(current) is Freshness.FRESH
            case Trigger.UNAUTHORIZED_SUSPECTED:
                return self._freshness(current) is Freshness.FRESH
            case Trigger.FORCED:
                return False

    def _freshness(self, credential: Credential) -> Freshness:
        return freshness(credential, self._deps.clock.now())

    def _ignore_other_machine(self) -> None:
        """Ignore a cached certificate of another node: of a reset host, or from a copied disk."""
        cached, settings = self._cached, self._invocation.settings
        if cached is None or cached.is_of(settings.node_name, settings.required_provider_id()):
            return
        _logger.warning(
            "the state directory has the certificate of node %s (provider ID %s), and this machine"
            " is node %s: a new certificate is requested",
            cached.node_name,
            cached.provider_id,
            settings.node_name,
        )
        self._cached = None

    def _resolve_identity(self, current: Credential | None) -> None:
        """Find out who this machine is: an exchange is about to begin.

        Raises what a query of the provider raises, and ConfigurationInvalid.
        """

        def query(provider: str) -> Identity:
            with self._deps.phases.phase("provider"):
                return self._deps.query_provider(provider, self._deadline)

        settings = self._invocation.settings.with_provider_identity(query, current)
        settings = replace(
            settings, provider_id=settings.required_provider_id(), provider_id_file=None
        )
        self._invocation = replace(self._invocation, settings=settings)

    def _sources(self, *, refused: bool) -> "_Sources":
        """Return the credentials for requests to the API server."""
        certificate = None
        if self._cached is not None and not refused:
            # The API server has just accepted a current one that seems to have expired.
            expired = self._freshness(self._cached) is Freshness.EXPIRED
            if self._current is not None or not expired:
                certificate = self._cached
        settings = self._invocation.settings
        paths = (settings.bootstrap_kubeconfig, settings.entry_kubeconfig)
        bootstraps = tuple(map(self._load_bootstrap, paths))
        return _Sources(
            certificate=certificate,
            bootstraps=bootstraps,
            fingerprint=digest(
                relevant_settings(settings),
                asdict(self._invocation.exec_info.server),
                identity(None if certificate is None else certificate.key_pair),
                *map(identity, bootstraps),
            ),
        )

    def _load_bootstrap(self, path: Path) -> ApiCredential | BootstrapCredentialUnusable:
        try:
            return self._deps.load_bootstrap(path)
        except BootstrapCredentialUnusable as error:
            return error

    def _enroll_with_fallback(
        self, sources: "_Sources", refusal: AttestationError | None
    ) -> "exchange.IssuedCredential":
        """Run the exchange with the certificate; if refused, with the next credential.

        `refusal` is why the certificate was refused already.
        """
        cause = refusal or BootstrapCredentialUnusable("there is no certificate")
        certificate = sources.certificate
        if certificate is not None and certificate.node_name == self._invocation.settings.node_name:
            try:
                return self._exchange(certificate.key_pair)
            except Unauthorized:
                cause = Unauthorized(_REFUSED)
            except ClientCertificateUnusable as error:
                cause = error
            except RequestDenied as error:
                if error.detail != CREDENTIAL_UNKNOWN:
                    raise
                cause = RequestDenied(f"{_UNKNOWN} ({error.message})", detail=error.detail)
            _logger.warning("%s: the bootstrap credential is used", cause.message)
        return self._enroll_with_bootstrap(sources.bootstraps, cause)

    def _enroll_with_bootstrap(
        self,
        sources: Sequence[ApiCredential | BootstrapCredentialUnusable],
        cause: AttestationError,
    ) -> "exchange.IssuedCredential":
        """Run the exchange with the first source that the API server accepts.

        `cause` says why the stored certificate cannot be used.
        """
        path = self._invocation.settings.bootstrap_kubeconfig
        refusal: Unauthorized | None = None
        problems: list[str] = []
        for source in sources:
            if isinstance(source, BootstrapCredentialUnusable):
                problems.append(source.message)
                continue
            try:
                return self._exchange(source)
            except ClientCertificateUnusable as error:
                problems.append(error.message)
            except Unauthorized as error:
                refusal = error
        if refusal is not None:
            raise Unauthorized(
                f"{cause.message}, and the API server does not accept the bootstrap credential"
                f" (401); put a new bootstrap token (kubeadm token create) into {path}"
            ) from refusal
        # A 401 or a denial starts a cooldown. Without a certificate no request was sent, so
        # BootstrapCredentialUnusable starts no cooldown.
        raise type(cause)(
            f"{cause.message}, and there is no bootstrap credential: {problems[0]};"
            f" put a kubeconfig with a new bootstrap token (kubeadm token create) at {path}",
            detail=cause.detail,
        )

    def _exchange(self, requester: ApiCredential) -> "exchange.IssuedCredential":
        # Imported here: it loads `cryptography`, which calls that begin no exchange do not need.
        with late_imports():
            from authenticator.enroll import exchange  # noqa: PLC0415
        settings = self._invocation.settings
        spec = CertificateSpec(
            node_name=settings.node_name,
            provider_id=settings.required_provider_id(),
            signer_name=settings.signer_name,
            usages=CLIENT_USAGES,
            names=(),
            expiration_seconds=settings.expiration_seconds,
            fingerprint="",
        )
        spec = with_fingerprint(spec, self._invocation.exec_info.server, requester)
        return exchange.run_exchange(
            spec,
            self._deps,
            self._connect(requester),
            self._verify_with_api_server,
            self._deadline,
        )

    def _verify_with_api_server(self, new: "exchange.IssuedCredential") -> None:
        """Require that the API server authenticates the new certificate as this node."""
        trial.require_accepted(
            self._connect(new.pair),
            self._invocation.settings.node_name,
            new.issued.not_before,
        )

    def _connect(self, requester: ApiCredential) -> CsrApi:
        return self._deps.connect(self._invocation.exec_info.server, requester, self._deadline)

    def _store(
        self, new: "exchange.IssuedCredential", current: Credential | None, trigger: Trigger
    ) -> Credential:
        """Cache the new credential and return it; a call that prints it needs no disk.

        Raises `StateDirectoryUnwritable` if it can be neither stored nor printed.
        """
        earlier = () if current is None else current.known_calls
        others = tuple(call for call in earlier if call != self._invocation.digest)
        credential = Credential(
            node_name=self._invocation.settings.node_name,
            key_pair=new.pair,
            not_before=new.issued.not_before,
            not_after=new.issued.not_after,
            received_at=int(self._deps.clock.now()),
            exec_info=self._invocation.exec_info.raw,
            arguments=self._invocation.arguments,
            api_version=self._invocation.exec_info.api_version,
            provider_id=self._invocation.settings.required_provider_id(),
            known_calls=(self._invocation.digest, *others)[:MAX_KNOWN_CALLS],
        )
        try:
            self._deps.store.save_credential(credential)
        except StateDirectoryUnwritable as error:
            if trigger is not Trigger.REQUIRED:
                raise
            _logger.warning("the new credential is served, but not stored: %s", error)
            return credential
        try:
            self._deps.store.delete_pending(new.fingerprint)
            self._deps.store.delete_cooldowns()
        except StateDirectoryUnwritable as error:
            _logger.warning(
                "the new credential is stored; the exchange that has ended stays as well: %s", error
            )
        return credential


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """The credentials for requests to the API server, and a digest of everything that was tried."""

    certificate: Credential | None
    bootstraps: tuple[ApiCredential | BootstrapCredentialUnusable, ...]
    """Of the bootstrap kubeconfig, and of the entry kubeconfig."""
    fingerprint: str
