"""Checks that a Secret belongs to a Cluster, as Cluster API writes it.

A Secret `<cluster>-kubeconfig` or `<cluster>-ca` has its name by convention only. Another Secret
may have the same name, or may be left from a deleted Cluster of the same name. Source: Cluster
API's util/secret/consts.go and "Using Custom Certificates" in its book.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol

from signer.model import ClusterKey

CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
CLUSTER_SECRET_TYPE: Final = "cluster.x-k8s.io/secret"  # noqa: S105 # a type
KUBECONFIG_TYPES: Final = frozenset({CLUSTER_SECRET_TYPE})
AUTHORITY_TYPES: Final = frozenset({CLUSTER_SECRET_TYPE, "kubernetes.io/tls"})
"""Cluster API's documentation has operators who bring their own authority create a Secret of type
`kubernetes.io/tls` (https://cluster-api.sigs.k8s.io/tasks/certs/using-custom-certificates)."""
_GROUP: Final = "cluster.x-k8s.io/"


class Owner(Protocol):
    """One owner reference."""

    @property
    def api_version(self) -> str:
        """Return the owner's API version."""

    @property
    def kind(self) -> str:
        """Return the owner's kind."""

    @property
    def uid(self) -> str:
        """Return the owner's UID."""


class ClusterSecret(Protocol):
    """The metadata of a Secret."""

    @property
    def created(self) -> datetime | None:
        """Return its creation time."""

    @property
    def type(self) -> str:
        """Return its type."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Return its labels."""

    @property
    def owners(self) -> Sequence[Owner]:
        """Return its owner references."""


class ClusterIdentity(Protocol):
    """The metadata of a Cluster."""

    @property
    def uid(self) -> str:
        """Return its UID."""

    @property
    def created(self) -> datetime | None:
        """Return its creation time."""


def authority_secret_name(key: ClusterKey) -> str:
    """Return the name of the Secret with the certificate authority of a Cluster."""
    return f"{key.name}-ca"


def require_label_and_type(secret: ClusterSecret, cluster: str, types: frozenset[str]) -> None:
    """Raise `ValueError` unless the Secret is labelled for the Cluster and has one of the types."""
    if secret.type not in types:
        raise ValueError(f"its type must be {' or '.join(sorted(types))}")
    if secret.labels.get(CLUSTER_NAME_LABEL) != cluster:
        raise ValueError(f"its label {CLUSTER_NAME_LABEL} must name the Cluster")


def require_current(secret: ClusterSecret, cluster: ClusterIdentity) -> None:
    """Raise `ValueError` if the Secret belongs to an earlier Cluster of the same name.

    A Cluster that is made again has a new UID. An owner reference to a Cluster must have this UID.
    Cluster API generates a Secret after its Cluster and gives it an owner, often the control plane:
    a Secret with an owner that is older than the Cluster is left from the earlier one. A Secret
    without an owner is the user's, who may create it before the Cluster.
    """
    for owner in secret.owners:
        is_cluster = owner.kind == "Cluster" and owner.api_version.startswith(_GROUP)
        if is_cluster and owner.uid != cluster.uid:
            raise ValueError("it belongs to an earlier Cluster of the same name: delete it")
    if not secret.owners or secret.created is None or cluster.created is None:
        return
    if secret.created < cluster.created:
        raise ValueError("it is older than its Cluster: delete it, and Cluster API makes it again")
