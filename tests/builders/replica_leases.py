"""Leases of the signer's replicas."""

from datetime import UTC, datetime

from signer.inventory.replica_records.replica_leases import (
    NAMESPACE_LABEL,
    SETTINGS_LABEL,
)
from signer.kube.leases import Lease, format_micro_time
from tests.fakes.cluster_objects import Object

RENEWED = datetime(2026, 11, 22, tzinfo=UTC)


def replica_lease(
    name: str = "one",
    *,
    renewed: datetime = RENEWED,
    namespace: str = "",
) -> Lease:
    """Return the Lease of a replica that serves one namespace, or all."""
    return Lease(
        name=name,
        uid=f"uid-of-{name}",
        resource_version="1",
        labels={
            SETTINGS_LABEL: "0",
            NAMESPACE_LABEL: namespace,
        },
        holder=name,
        renewed=format_micro_time(renewed),
    )


def lease_body(lease: Lease) -> Object:
    """Return a Lease as the API server stores it."""
    metadata = {
        "name": lease.name,
        "uid": lease.uid,
        "labels": dict(lease.labels),
    }
    return {"metadata": metadata, "spec": {"renewTime": lease.renewed}}
