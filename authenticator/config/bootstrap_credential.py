"""The bootstrap credential: authenticates the requests of a node that has no certificate.

It is the user of the bootstrap kubeconfig, or of the entry kubeconfig in the same directory. The
entry credential belongs to the cluster and does not expire: it brings back a node whose bootstrap
token has expired (docs/decisions/0038).

Nothing else of the kubeconfig is used: API server and CA are those of the exec info. A user that
would run a program (exec, auth-provider) or that has a password is not accepted. The credential
alone gets no certificate: the signer demands proof by the TPM.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authenticator.config import kubeconfig
from authenticator.config.settings import Settings
from authenticator.errors import BootstrapCredentialUnusable, KubeconfigUnusable
from authenticator.model import ApiCredential, KeyPair, Token

UNSUPPORTED_USER_KEYS: Final = (
    "exec",
    "auth-provider",
    "username",
    "password",
    "as",
    "as-uid",
    "as-groups",
)


def find_bootstrap_credential(settings: Settings) -> tuple[Path, ApiCredential]:
    """Return the bootstrap kubeconfig and its credential, else those of the entry kubeconfig.

    Raises `BootstrapCredentialUnusable`.
    """
    path, entry = settings.bootstrap_kubeconfig, settings.entry_kubeconfig
    try:
        return path, load_bootstrap_credential(path)
    except BootstrapCredentialUnusable:
        if not entry.exists():
            raise
        return entry, load_bootstrap_credential(entry)


def load_bootstrap_credential(path: Path) -> ApiCredential:
    """Return the credential of the current context's user. Raises `BootstrapCredentialUnusable`."""
    try:
        return _credential_of(path, kubeconfig.load(path))
    except KubeconfigUnusable as error:
        raise BootstrapCredentialUnusable(error.message) from error


def _credential_of(path: Path, config: kubeconfig.Kubeconfig) -> ApiCredential:
    for key in UNSUPPORTED_USER_KEYS:
        if key in config.user:
            raise BootstrapCredentialUnusable(
                f"{path}: its user has {key}, which is not supported: it needs a token or a client"
                " certificate"
            )
    token = _token(config)
    if token is not None:
        return Token(token=_header_value(path, token.decode("utf-8", "replace").strip()))
    certificate = _data(config, "client-certificate")
    key_pem = _data(config, "client-key")
    if certificate is None or key_pem is None:
        raise BootstrapCredentialUnusable(
            f"{path}: its user has neither a token nor a client certificate with its key"
        )
    return KeyPair(certificate=certificate, key=key_pem)


def _header_value(path: Path, token: str) -> str:
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise BootstrapCredentialUnusable(f"{path}: its token must be one word of ASCII")
    return token


def _token(config: kubeconfig.Kubeconfig) -> bytes | None:
    """Return the token: that of its file, which client-go prefers while it can read it."""
    inline, name = (_text(config.path, config.user, key) for key in ("token", "tokenFile"))
    if name is not None:
        try:
            token = config.file(name)
        except KubeconfigUnusable:
            if inline is None:
                raise
        else:
            if token.strip() or inline is None:
                return token
    return None if inline is None else inline.encode()


def _data(config: kubeconfig.Kubeconfig, key: str) -> bytes | None:
    inline = _text(config.path, config.user, key + "-data")
    if inline is None:
        name = _text(config.path, config.user, key)
        return None if name is None else config.file(name)
    try:
        return base64.b64decode(inline, validate=True)
    except (binascii.Error, ValueError):
        raise BootstrapCredentialUnusable(f"{config.path}: {key}-data must be base64") from None


def _text(path: Path, user: Mapping[str, object], key: str) -> str | None:
    value = user.get(key)
    if value is not None and not isinstance(value, str):
        raise BootstrapCredentialUnusable(f"{path}: {key} of its user must be a string")
    return value or None
