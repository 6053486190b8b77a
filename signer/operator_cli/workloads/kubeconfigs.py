"""Builds kubeconfigs that connect to the API server of another one."""

import base64
from collections.abc import Mapping

import yaml

from signer.kube.transport.kubeconfig import Connection


def build_kubeconfig(connection: Connection, name: str, user: Mapping[str, str]) -> bytes:
    """Return a kubeconfig for the server of `connection`, with the fields of its user."""
    cluster = {
        "server": connection.server,
        "certificate-authority-data": encode_base64(connection.ca),
    }
    if connection.server_name is not None:
        cluster["tls-server-name"] = connection.server_name
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "workload", "cluster": cluster}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": "workload", "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(config).encode()


def encode_base64(text: str) -> str:
    """Return a text as a `-data` field of a kubeconfig has it."""
    return base64.b64encode(text.encode()).decode()
