"""Kubeconfig texts with everything inline, as Cluster API and kubeadm write them."""

import base64
from typing import Any

import yaml

from tests.harness.pki import Pair


def with_certificate(
    server: str, authority: bytes, pair: Pair, *, user: str = "kubernetes-admin"
) -> str:
    """Return a kubeconfig for a client certificate."""
    credential = {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }
    return _text(server, authority, user, credential)


def with_token(
    server: str, authority: bytes, token: str, *, user: str = "tls-bootstrap-token-user"
) -> str:
    """Return a kubeconfig for a token, by default like kubeadm's bootstrap-kubelet.conf."""
    return _text(server, authority, user, {"token": token})


def _text(server: str, authority: bytes, user: str, credential: dict[str, str]) -> str:
    context = f"{user}@kubernetes"
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "clusters": [
            {
                "name": "kubernetes",
                "cluster": {"certificate-authority-data": _base64(authority), "server": server},
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": "kubernetes", "user": user}}],
        "current-context": context,
        "kind": "Config",
        "users": [{"name": user, "user": credential}],
    }
    return yaml.safe_dump(config)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
