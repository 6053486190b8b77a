"""Digests that say which earlier attempt an exchange or a cooldown belongs to."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256

from authenticator.config.settings import Settings
from authenticator.errors import BootstrapCredentialUnusable
from authenticator.model import ApiCredential, CertificateSpec, KeyPair, Server, Token


def with_fingerprint(
    spec: CertificateSpec, server: Server, requester: ApiCredential
) -> CertificateSpec:
    """Return the spec with its fingerprint.

    An exchange is resumed only if spec, server and requester are unchanged.
    Other exec info fields do not matter, so two kubeconfigs of one node may share an exchange.
    """
    parts = asdict(replace(spec, fingerprint=""))
    return replace(spec, fingerprint=digest(parts, server.url, identity(requester)))


def relevant_settings(settings: Settings) -> Mapping[str, object]:
    """Return the settings that a failure may come from."""
    return {k: v for k, v in asdict(settings).items() if k not in {"state_dir", "timeout_seconds"}}


def digest(*parts: object) -> str:
    """Hash JSON values; sets, paths and addresses are written as lists and strings."""

    def encode(value: object) -> object:
        return sorted(map(str, value)) if isinstance(value, frozenset) else str(value)

    return sha256(json.dumps(parts, default=encode).encode()).hexdigest()


def identity(source: ApiCredential | BootstrapCredentialUnusable | None) -> str:
    """Return a string that differs for each source; it is a secret when the source is a token."""
    match source:
        case Token():
            return source.token
        case KeyPair():
            return source.certificate.hex()
        case BootstrapCredentialUnusable():
            return source.message
        case None:
            return ""
