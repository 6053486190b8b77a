"""The bootstrap credential: with what a node that has no certificate files its requests.

It is taken from a kubeconfig, of which nothing else is used: the API server and its CA are those of
the exec info. A user that would run a program (exec, auth-provider) or that has a password is
refused. The credential alone is worth nothing to a thief: the signer asks for the TPM's proof.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authenticator.config import kubeconfig
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


def load_bootstrap_credential(path: Path) -> ApiCredential:
    """Take the user of the kubeconfig's current context. Raises BootstrapCredentialUnusable."""
    try:
        return _requester(path, kubeconfig.load(path))
    except KubeconfigUnusable as error:
        raise BootstrapCredentialUnusable(error.message) from error


def _requester(path: Path, found: kubeconfig.Kubeconfig) -> ApiCredential:
    for key in UNSUPPORTED_USER_KEYS:
        if key in found.user:
            raise BootstrapCredentialUnusable(
                f"{path}: its user has {key}, which is not taken; give it a token or a certificate"
            )
    token = _value(found, "token", "tokenFile")
    if token is not None:
        return Token(token=_header_value(path, token.decode("utf-8", "replace").strip()))
    certificate = _data(found, "client-certificate")
    key_pem = _data(found, "client-key")
    if certificate is None or key_pem is None:
        raise BootstrapCredentialUnusable(
            f"{path}: its user has neither a token nor a client certificate with its key"
        )
    return KeyPair(certificate=certificate, key=key_pem)


def _header_value(path: Path, token: str) -> str:
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise BootstrapCredentialUnusable(f"{path}: its token is empty, or not one word of ASCII")
    return token


def _value(found: kubeconfig.Kubeconfig, key: str, file_key: str) -> bytes | None:
    inline = _text(found.path, found.user, key)
    if inline is not None:
        return inline.encode()
    name = _text(found.path, found.user, file_key)
    return None if name is None else found.file(name)


def _data(found: kubeconfig.Kubeconfig, key: str) -> bytes | None:
    inline = _text(found.path, found.user, key + "-data")
    if inline is None:
        name = _text(found.path, found.user, key)
        return None if name is None else found.file(name)
    try:
        return base64.b64decode(inline, validate=True)
    except (binascii.Error, ValueError):
        raise BootstrapCredentialUnusable(f"{found.path}: {key}-data is not base64") from None


def _text(path: Path, user: Mapping[str, object], key: str) -> str | None:
    value = user.get(key)
    if value is not None and not isinstance(value, str):
        raise BootstrapCredentialUnusable(f"{path}: {key} of its user is not a string")
    return value or None
