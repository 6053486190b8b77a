"""Kubeconfigs of a node."""

from collections.abc import Mapping
from typing import Any

TOKEN = {"token": "abcdef.0123456789abcdef"}
"""The user of a bootstrap kubeconfig."""


def kubeconfig(
    user: Mapping[str, object] = TOKEN, cluster: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "clusters": [{"name": "c", "cluster": dict(cluster or {})}],
        "users": [{"name": "u", "user": dict(user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
