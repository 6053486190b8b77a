"""serving: keeps an attested serving certificate current, in one file that the kubelet reads.

For kubelets that do not request their own (`serverTLSBootstrap`). Certificate and key are in one
file, which `tlsCertFile` and `tlsPrivateKeyFile` both name. One rename replaces both: the kubelet
reads the file twice when it reloads, rejects a pair that does not match, and reads again.

The exchange is that of docs/protocol.md section 3, and the node itself is the requester, with its
client certificate. A new certificate must have the requested names, and an issuer that the API
server can be expected to accept for kubelets. The certificate is replaced when it is due, or when
names, server and CA, or node name have changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from authenticator.config.invocation import Invocation
from authenticator.config.settings import Settings
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.enroll.fingerprint import with_fingerprint
from authenticator.errors import (
    ClientCertificateMissing,
    ClientCertificateUnusable,
    ConfigurationInvalid,
    Unauthorized,
)
from authenticator.late_imports import late_imports
from authenticator.model import Address, CertificateSpec, Clock, Deadline, KeyPair
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, freshness
from authenticator.state.store import FileStore
from common.errors import AttestationError
from common.names import SERVING_SIGNER, SERVING_USAGES
from common.node_identity import require_dns_name

if TYPE_CHECKING:
    from authenticator.enroll import exchange

SERVING_DIRECTORY: Final = "serving"
"""Subdirectory of the state directory; the kubelet reads the credential file in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServingRequest:
    """A requested serving certificate and its requester."""

    call: Invocation
    """The call of the kubelet, with complete settings."""
    spec: CertificateSpec
    requester: KeyPair

    def matches(self, cached: Credential) -> bool:
        """Return whether a certificate is for this cluster, this node and these names."""
        is_ours = self.call.matches(cached) is not None
        same_node = cached.node_name == self.spec.node_name
        return is_ours and same_node and cached.arguments == tuple(map(str, self.spec.names))


def serving_directory(state_dir: Path) -> Path:
    """Return the directory of the serving certificate."""
    return state_dir / SERVING_DIRECTORY


def parse_names(
    addresses: Sequence[str], dns: Sequence[str]
) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Parse the flags; return the valid names, and the problems of the others."""
    names: list[Address] = []
    problems = []
    for text in addresses:
        address = _as_address(text)
        if address is None:
            problems.append(f"--address {text!r} must be an IP address")
        else:
            names.append(address)
    for text in dns:
        try:
            names.append(require_dns_name(text.lower()))
        except AttestationError:
            problems.append(f"--dns {text!r} must be a DNS name")
        if _as_address(text) is not None:
            problems.append(f"--dns {text!r} is an IP address: use --address")
    return tuple(names), tuple(problems)


def _as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def find_usable_certificate(
    call: Invocation, current: Credential | None, store: FileStore, clock: Clock
) -> Credential | None:
    """Return the stored certificate while the kubelet can start with it, even if it is due.

    That of another node than `current`, the client certificate, is left over on a reset host.
    Queries neither provider nor API server, so the kubelet's start does not wait for them.
    """
    cached = call.matches(store.load_credential())
    if cached is None or freshness(cached, clock.now()) is Freshness.EXPIRED:
        return None
    is_left_over = current is not None and current.node_name != cached.node_name
    return None if is_left_over else cached


def obtain_serving_certificate(
    call: Invocation,
    names: tuple[Address, ...],
    current: Credential | None,
    deps: EnrollDependencies,
    deadline: Deadline,
) -> Credential:
    """Return the stored certificate while it is good, else obtain and store a new one.

    `current` is the node's client certificate, which authenticates the requests. `deps.store` is
    the store of the serving directory, and the caller holds its lock. Raises `AttestationError`
    leaves; a failure that may repeat starts a cooldown.
    """
    request = _build_request(call, names, current, deps, deadline)
    cached = deps.store.load_credential()
    fresh = cached is not None and freshness(cached, deps.clock.now()) is Freshness.FRESH
    if cached is not None and fresh and request.matches(cached):
        return cached
    fingerprint = request.spec.fingerprint
    cooldown.check(deps.store, deps.clock, fingerprint)
    try:
        return _store(request, deps, _exchange(request, deps, deadline))
    except Exception as error:
        cooldown.start(error, deps.store, deps.clock, fingerprint, deps.jitter())
        raise


def _build_request(
    call: Invocation,
    names: tuple[Address, ...],
    current: Credential | None,
    deps: EnrollDependencies,
    deadline: Deadline,
) -> _ServingRequest:
    """Resolve names and identity. Without flags the provider is asked each time: names change."""
    settings = call.settings
    if names or settings.provider is None:
        settings = settings.with_provider_identity(
            lambda setting: deps.query_provider(setting, deadline), current
        )
    else:
        identity = deps.query_provider(settings.provider, deadline)
        names = identity.addresses
        settings = settings.with_provider_identity(lambda _: identity, current)
    if not names:
        raise ConfigurationInvalid(
            "no names for the serving certificate: set --address and --dns, each exactly as the"
            " Machine has it, or a provider that knows the addresses"
        )
    requester = _requester(current, settings, deps.clock.now())
    spec = CertificateSpec(
        node_name=settings.node_name,
        provider_id=settings.required_provider_id(),
        signer_name=SERVING_SIGNER,
        usages=SERVING_USAGES,
        names=tuple(sorted(set(names), key=_by_kind)),
        expiration_seconds=settings.expiration_seconds,
        fingerprint="",
    )
    return _ServingRequest(
        call=replace(call, settings=settings),
        spec=with_fingerprint(spec, call.exec_info.server, requester),
        requester=requester,
    )


def _by_kind(name: Address) -> tuple[bool, str]:
    return not isinstance(name, str), str(name)


def _requester(current: Credential | None, settings: Settings, now: float) -> KeyPair:
    if (
        current is None
        or current.node_name != settings.node_name
        or freshness(current, now) is Freshness.EXPIRED
    ):
        raise ClientCertificateMissing(
            f"node {settings.node_name} has no valid client certificate, which the request for a"
            " serving certificate needs: run kubelet-authenticator-tpm join, or start the kubelet"
        )
    return current.key_pair


def _exchange(
    request: _ServingRequest, deps: EnrollDependencies, deadline: Deadline
) -> "exchange.IssuedCredential":
    # Imported here: they load `cryptography`, which a certificate that is good does not need.
    with late_imports():
        from authenticator.enroll import exchange, issued_certificate  # noqa: PLC0415
    server = request.call.exec_info.server
    try:
        return exchange.run_exchange(
            request.spec,
            deps,
            deps.connect(server, request.requester, deadline),
            lambda new: issued_certificate.verify_serving_chain(
                new.pair.certificate, request.requester.certificate, server.authorities()
            ),
            deadline,
        )
    except (ClientCertificateUnusable, Unauthorized) as error:
        raise type(error)(
            f"{error.message}; run kubelet-authenticator-tpm renew for a new client certificate"
        ) from error


def _store(
    request: _ServingRequest, deps: EnrollDependencies, new: "exchange.IssuedCredential"
) -> Credential:
    """Store the certificate where the kubelet reads it. Raises `StateDirectoryUnwritable`."""
    credential = Credential(
        node_name=request.spec.node_name,
        key_pair=new.pair,
        not_before=new.issued.not_before,
        not_after=new.issued.not_after,
        received_at=int(deps.clock.now()),
        exec_info=request.call.exec_info.raw,
        arguments=tuple(map(str, request.spec.names)),
        api_version=request.call.exec_info.api_version,
        provider_id=request.spec.provider_id,
    )
    deps.store.save_credential(credential)
    deps.store.delete_pending(new.fingerprint)
    deps.store.delete_cooldowns()
    return credential
