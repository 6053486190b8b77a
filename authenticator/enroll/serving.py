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

from authenticator.config.settings import Settings
from authenticator.enroll import exchange, issued_certificate
from authenticator.enroll.enroll import Call, World
from authenticator.model import Deadline, KeyPair, Wanted
from authenticator.providers.provider import Address
from authenticator.state import cooldown
from authenticator.state.credential import Credential, Freshness, assess
from common.errors import (
    AttestationError,
    ClientCertificateMissing,
    ConfigurationInvalid,
    CredentialRefused,
)
from common.names import SERVING_SIGNER, SERVING_USAGES
from common.pkcs10 import valid_node_name

FOLDER: Final = "serving"
"""In the state folder, as its own: the credential file in it is what the kubelet reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A serving certificate that is wanted, and as whom it is asked for."""

    call: Call
    """The kubelet's own; its settings need no provider any more."""
    names: tuple[Address, ...]
    requester: KeyPair

    def served_by(self, kept: Credential) -> bool:
        """Tell whether a certificate was made for this cluster, this node and these names."""
        made_for = (kept.exec_info, kept.node_name, kept.arguments)
        names = tuple(map(str, self.names))
        return made_for == (self.call.exec_info.raw, self.call.settings.node_name, names)


def folder_in(state_dir: Path) -> Path:
    """Return the folder of the serving certificate."""
    return state_dir / FOLDER


def names_given(
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
            names.append(valid_node_name(text.lower()))
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


def obtain(
    call: Call,
    names: tuple[Address, ...],
    current: Credential | None,
    world: World,
    deadline: Deadline,
) -> Credential:
    """Return the certificate in the file while it is good, else a new one, which is then there.

    It is asked for with `current`, the node's client certificate. `world.store` is the serving
    folder's, and the caller holds its lock. Raises leaves of common/errors; a failure is kept as a
    cooldown where that helps.
    """
    wish = _wish(call, names, current, world, deadline)
    kept = world.store.load_credential()
    fresh = kept is not None and assess(kept, world.clock.wall()) is Freshness.FRESH
    if kept is not None and fresh and wish.served_by(kept):
        return kept
    digest = _digest(wish)
    cooldown.require_none(world.store, world.clock, digest)
    try:
        return _keep(wish, world, _exchange(wish, world, deadline, digest))
    except Exception as error:
        cooldown.keep(error, world.store, world.clock, digest, world.jitter())
        raise


def _wish(
    call: Call,
    names: tuple[Address, ...],
    current: Credential | None,
    world: World,
    deadline: Deadline,
) -> _Wish:
    """Settle what is wanted; names that no flag gives are asked for every time: they change."""
    settings = call.settings
    if names or settings.provider is None:
        settings = settings.settled(lambda setting: world.ask_provider(setting, deadline))
    else:
        told = world.ask_provider(settings.provider, deadline)
        names, settings = told.addresses, settings.settled(lambda _: told)
    if not names:
        raise ConfigurationInvalid(
            "no names for the serving certificate: give --address and --dns, each as the Machine"
            " has it, or a provider that tells addresses"
        )
    return _Wish(
        call=replace(call, settings=settings),
        names=tuple(sorted(set(names), key=_by_kind)),
        requester=_requester(current, settings, world.clock.wall()),
    )


def _by_kind(name: Address) -> tuple[bool, str]:
    return not isinstance(name, str), str(name)


def _requester(current: Credential | None, settings: Settings, now: float) -> KeyPair:
    if (
        current is None
        or current.node_name != settings.node_name
        or assess(current, now) is Freshness.EXPIRED
    ):
        raise ClientCertificateMissing(
            f"node {settings.node_name} has no client certificate to ask with: it comes with"
            " kubelet-authenticator-tpm join, or when the kubelet starts"
        )
    return current.pair


def _exchange(wish: _Wish, world: World, deadline: Deadline, digest: str) -> exchange.Certified:
    settings, server = wish.call.settings, wish.call.exec_info.server
    asked = Wanted(
        node_name=settings.node_name,
        provider_id=settings.required_provider_id(),
        signer_name=SERVING_SIGNER,
        usages=SERVING_USAGES,
        names=wish.names,
        expiration_seconds=settings.expiration_seconds,
        made_for=digest,
    )
    around = world.surroundings(
        world.connect(server, wish.requester, deadline),
        trial=lambda pair: issued_certificate.require_authority(pair.certificate, server.ca),
    )
    try:
        return exchange.run(asked, around, deadline)
    except CredentialRefused as error:
        raise CredentialRefused(
            f"{error.message}; kubelet-authenticator-tpm renew gets a client certificate that it"
            " takes"
        ) from error


def _keep(wish: _Wish, world: World, certified: exchange.Certified) -> Credential:
    """Put the certificate where the kubelet reads it. Raises StateFolderUnwritable."""
    made = Credential(
        node_name=wish.call.settings.node_name,
        pair=certified.pair,
        not_before=certified.issued.not_before,
        not_after=certified.issued.not_after,
        received=int(world.clock.wall()),
        exec_info=wish.call.exec_info.raw,
        arguments=tuple(map(str, wish.names)),
        api_version=wish.call.exec_info.api_version,
    )
    world.store.save_credential(made)
    world.store.drop_pending()
    world.store.save_cooldown(None)
    return made


def _digest(wish: _Wish) -> str:
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
