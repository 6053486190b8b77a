"""Checks that a Secret belongs to a Cluster, as Cluster API writes it.

A Secret `<cluster>-kubeconfig` or `<cluster>-ca` has its name by convention only. Another Secret
may have the same name, or may be left from a deleted Cluster of the same name. Source: Cluster
API's util/secret/consts.go and "Using Custom Certificates" in its book.
"""

from typing import Final

from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.kinds.resources import CAPI
from signer.kube.secrets import Secret

CLUSTER_SECRET_TYPE: Final = f"{CAPI}/secret"
KUBECONFIG_TYPES: Final = frozenset({CLUSTER_SECRET_TYPE})
AUTHORITY_TYPES: Final = frozenset({CLUSTER_SECRET_TYPE, "kubernetes.io/tls"})
"""Cluster API's documentation has operators who bring their own authority create a Secret of type
`kubernetes.io/tls` (https://cluster-api.sigs.k8s.io/tasks/certs/using-custom-certificates)."""


def authority_secret_name(key: ClusterKey) -> str:
    """Return the name of the Secret with the certificate authority of a Cluster."""
    return f"{key.name}-ca"


def require_label_and_type(secret: Secret, cluster: str, types: frozenset[str]) -> None:
    """Raise `ValueError` unless the Secret is labelled for the Cluster and has one of the types."""
    if secret.type not in types:
        raise ValueError(f"its type must be {' or '.join(sorted(types))}")
    if secret.labels.get(CLUSTER_NAME_LABEL) != cluster:
        raise ValueError(f"its label {CLUSTER_NAME_LABEL} must name the Cluster")


def require_current(secret: Secret, cluster: ClusterObject) -> None:
    """Raise `ValueError` if the Secret belongs to an earlier Cluster of the same name.

    A Cluster that is made again has a new UID. An owner reference to a Cluster must have this UID.
    Cluster API generates a Secret after its Cluster and gives it an owner, often the control plane:
    a Secret with an owner that is older than the Cluster is left from the earlier one. A Secret
    without an owner is the user's, who may create it before the Cluster.
    """
    for owner in secret.owners:
        is_cluster = owner.kind == "Cluster" and owner.api_version.startswith(f"{CAPI}/")
        if is_cluster and owner.uid != cluster.uid:
            raise ValueError("it belongs to an earlier Cluster of the same name: delete it")
    if not secret.owners or secret.created is None or cluster.created is None:
        return
    if secret.created < cluster.created:
        raise ValueError("it is older than its Cluster: delete it, and Cluster API makes it again")
