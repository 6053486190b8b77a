"""serving: keeps an attested serving certificate current, in one file that the kubelet reads.

For kubelets that do not ask for their own (`serverTLSBootstrap`). Certificate and key lie in one
file, which is replaced by one rename and which both `tlsCertFile` and `tlsPrivateKeyFile` name: the
kubelet reads it twice when it reloads, refuses what does not belong together, and reads again.

It is the exchange of docs/protocol.md section 3, asked for by the node itself with its client
certificate. What comes back has to be for these names, and to lead to the cluster's authority:
that is what the API server verifies kubelets with. The certificate is replaced when it is due, or
when names, settings or the cluster have changed.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from authenticator.config.invocation import Invocation
from authenticator.config.settings import Settings
from authenticator.enroll import exchange, issued_certificate
from authenticator.enroll.enroll import EnrollDependencies
from authenticator.errors import ClientCertificateMissing, ConfigurationInvalid, Unauthorized
from authenticator.model import Address, CertificateSpec, Deadline, KeyPair
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, freshness
from common.errors import AttestationError
from common.names import SERVING_SIGNER, SERVING_USAGES
from common.node_identity import require_node_name

SERVING_DIRECTORY: Final = "serving"
"""In the state folder, as its own: the credential file in it is what the kubelet reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServingRequest:
    """A serving certificate that is wanted, and as whom it is asked for."""

    call: Invocation
    """The kubelet's own; its settings need no provider any more."""
    names: tuple[Address, ...]
    requester: KeyPair

    def matches(self, kept: Credential) -> bool:
        """Tell whether a certificate was made for this cluster, this node and these names."""
        made_for = (kept.exec_info, kept.node_name, kept.arguments)
        names = tuple(map(str, self.names))
        return made_for == (self.call.exec_info.raw, self.call.settings.node_name, names)


def serving_directory(state_dir: Path) -> Path:
    """Return the folder of the serving certificate."""
    return state_dir / SERVING_DIRECTORY


def parse_names(
    addresses: Sequence[str], dns: Sequence[str]
) -> tuple[tuple[Address, ...], tuple[str, ...]]:
    """Read the flags; return the names, and what is wrong with the others."""
    names: list[Address] = []
    problems = []
    for text in addresses:
        address = _as_address(text)
        if address is None:
            problems.append(f"--address {text!r} is no IP address")
        else:
            names.append(address)
    for text in dns:
        try:
            names.append(require_node_name(text.lower()))
        except AttestationError:
            problems.append(f"--dns {text!r} is no DNS name")
        if _as_address(text) is not None:
            problems.append(f"--dns {text!r} is an IP address")
    return tuple(names), tuple(problems)


def _as_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def obtain_serving_certificate(
    call: Invocation,
    names: tuple[Address, ...],
    current: Credential | None,
    world: EnrollDependencies,
    deadline: Deadline,
) -> Credential:
    """Return the certificate in the file while it is good, else a new one, which is then there.

    It is asked for with `current`, the node's client certificate. `world.store` is the serving
    folder's, and the caller holds its lock. Raises leaves of common/errors; a failure is kept as a
    cooldown where that helps.
    """
    wish = _build_request(call, names, current, world, deadline)
    kept = world.store.load_credential()
    fresh = kept is not None and freshness(kept, world.clock.now()) is Freshness.FRESH
    if kept is not None and fresh and wish.matches(kept):
        return kept
    digest = _digest(wish)
    cooldown.check(world.store, world.clock, digest)
    try:
        return _keep(wish, world, _exchange(wish, world, deadline, digest))
    except Exception as error:
        cooldown.start(error, world.store, world.clock, digest, world.jitter())
        raise


def _build_request(
    call: Invocation,
    names: tuple[Address, ...],
    current: Credential | None,
    world: EnrollDependencies,
    deadline: Deadline,
) -> _ServingRequest:
    """Settle what is wanted; names that no flag gives are asked for every time: they change."""
    settings = call.settings
    if names or settings.provider is None:
        settings = settings.with_provider_identity(
            lambda setting: world.query_provider(setting, deadline)
        )
    else:
        told = world.query_provider(settings.provider, deadline)
        names, settings = told.addresses, settings.with_provider_identity(lambda _: told)
    if not names:
        raise ConfigurationInvalid(
            "no names for the serving certificate: give --address and --dns, each as the Machine"
            " has it, or a provider that tells addresses"
        )
    return _ServingRequest(
        call=replace(call, settings=settings),
        names=tuple(sorted(set(names), key=_by_kind)),
        requester=_requester(current, settings, world.clock.now()),
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
            f"node {settings.node_name} has no client certificate to ask with: it comes with"
            " kubelet-authenticator-tpm join, or when the kubelet starts"
        )
    return current.key_pair


def _exchange(
    wish: _ServingRequest, world: EnrollDependencies, deadline: Deadline, digest: str
) -> exchange.IssuedCredential:
    settings, server = wish.call.settings, wish.call.exec_info.server
    asked = CertificateSpec(
        node_name=settings.node_name,
        provider_id=settings.required_provider_id(),
        signer_name=SERVING_SIGNER,
        usages=SERVING_USAGES,
        names=wish.names,
        expiration_seconds=settings.expiration_seconds,
        fingerprint=digest,
    )
    around = world.exchange_dependencies(
        world.connect(server, wish.requester, deadline),
        trial=lambda pair: issued_certificate.verify_chain(pair.certificate, server.ca),
    )
    try:
        return exchange.run_exchange(asked, around, deadline)
    except Unauthorized as error:
        raise Unauthorized(
            f"{error.message}; kubelet-authenticator-tpm renew gets a client certificate that it"
            " takes"
        ) from error


def _keep(
    wish: _ServingRequest, world: EnrollDependencies, certified: exchange.IssuedCredential
) -> Credential:
    """Put the certificate where the kubelet reads it. Raises StateDirectoryUnwritable."""
    made = Credential(
        node_name=wish.call.settings.node_name,
        key_pair=certified.pair,
        not_before=certified.issued.not_before,
        not_after=certified.issued.not_after,
        received_at=int(world.clock.now()),
        exec_info=wish.call.exec_info.raw,
        arguments=tuple(map(str, wish.names)),
        api_version=wish.call.exec_info.api_version,
    )
    world.store.save_credential(made)
    world.store.delete_pending()
    world.store.save_cooldown(None)
    return made


def _digest(wish: _ServingRequest) -> str:
    """Name what is tried: for what, and as whom."""
    settings = wish.call.settings
    parts = (
        settings.node_name,
        settings.required_provider_id(),
        settings.expiration_seconds,
        [str(name) for name in wish.names],
        wish.requester.certificate.hex(),
    )
    return sha256(json.dumps(parts).encode() + wish.call.exec_info.raw).hexdigest()
