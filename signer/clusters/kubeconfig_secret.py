"""Which Secret the signer connects to a workload cluster with, and what it may contain.

An operator can give the signer a Secret of its own, with the rights of workload-rbac.yaml alone
(docs/install-signer.md). Without it, the signer uses the one that Cluster API writes, which has all
rights.
"""

from collections.abc import Callable
from typing import Final

from signer.errors import KubeconfigRefused
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.cluster_api.cluster_secret import (
    KUBECONFIG_TYPES,
    require_current,
    require_label_and_type,
)
from signer.kinds.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.kube.secrets import Secret
from signer.kube.transport.kubeconfig import Connection, parse_kubeconfig

_MAX_KUBECONFIG: Final = 16 << 10
"""Bytes. A kubeconfig that Cluster API writes has 6,000 at most."""


def signer_kubeconfig_name(key: ClusterKey) -> str:
    """Return the name of the signer's own Secret for a Cluster."""
    return f"{key.name}-attestation-kubeconfig"


def admin_kubeconfig_name(key: ClusterKey) -> str:
    """Return the name of the Secret that Cluster API writes for a Cluster."""
    return f"{key.name}-kubeconfig"


def find_kubeconfig_secret(
    read: Callable[[str, str], Secret | None], key: ClusterKey
) -> tuple[str, Secret | None]:
    """Return name and content of the Secret to connect with; the signer's own comes first.

    The own Secret of the Cluster `a` has the name of the administrator's Secret of a Cluster
    `a-attestation`. So it counts only if its label names this Cluster. Raises what `read` raises.
    """
    own = signer_kubeconfig_name(key)
    secret = read(key.namespace, own)
    if secret is not None and secret.labels.get(CLUSTER_NAME_LABEL) == key.name:
        return own, secret
    name = admin_kubeconfig_name(key)
    return name, read(key.namespace, name)


def read_connection(secret: Secret | None, cluster: ClusterObject) -> Connection:
    """Return the connection that a Cluster's kubeconfig Secret describes.

    Raises `KubeconfigRefused`: it is missing, is not this Cluster's, or has a refused kubeconfig.
    """
    if secret is None:
        raise KubeconfigRefused("it is missing")
    try:
        require_label_and_type(secret, cluster.key.name, KUBECONFIG_TYPES)
        require_current(secret, cluster)
    except ValueError as error:
        raise KubeconfigRefused(str(error)) from error
    data = secret.data.get("value", b"")
    if len(data) > _MAX_KUBECONFIG:
        raise KubeconfigRefused("its key value must not exceed 16 KiB")
    return parse_kubeconfig(data)
