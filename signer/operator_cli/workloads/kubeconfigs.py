"""Reads the administrator's kubeconfig of a Cluster, and builds others for its API server."""

import base64
from collections.abc import Mapping, Sequence

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from signer.clusters.kubeconfig_secret import admin_kubeconfig_name, read_connection
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kube.transport.kubeconfig import Connection
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.workloads.workload_reader import read_named_secret


def read_administrator(api: ManagementApi, cluster: ClusterObject) -> Connection:
    """Return the connection of the Secret that Cluster API writes.

    Raises `CommandError`, and `AttestationError`: the Secret is refused.
    """
    key = cluster.key
    secret = read_named_secret(api, key.namespace, admin_kubeconfig_name(key))
    return read_connection(secret, cluster)


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


def build_request(
    key: ec.EllipticCurvePrivateKey, subject: Sequence[x509.NameAttribute[str]] = ()
) -> str:
    """Return `spec.request` of a CSR for this key."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    pem = request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return base64.b64encode(pem).decode()
