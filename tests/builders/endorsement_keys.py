"""EndorsementKeys and their holders, as the signer reads them."""

from dataclasses import replace
from typing import Any

from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, Registration, TrustBasis


def key_holder(cluster: ClusterKey, **changes: Any) -> KeyHolder:  # noqa: ANN401 # fields of KeyHolder
    """Return the holder of a key in a Cluster, with changes of its fields."""
    holder = KeyHolder(
        cluster=cluster,
        node_name="node-1",
        provider_id="test://machine-1",
        basis=TrustBasis.REGISTERED,
    )
    return replace(holder, **changes)


def endorsement_key(name: str, **changes: Any) -> EndorsementKeyObject:  # noqa: ANN401 # fields of it
    """Return a key that is neither registered nor held, with changes of its fields."""
    key = EndorsementKeyObject(
        name=name,
        resource_version="1",
        registered_for=(),
        released_from=(),
        banned=False,
        held_by=None,
    )
    return replace(key, **changes)


def registration(cluster: ClusterKey, **fields: str | None) -> Registration:
    """Return a registration in a Cluster; the fields that are not given match nothing."""
    entry = Registration(cluster=cluster, provider_id=None, machine_name=None, node_name=None)
    return replace(entry, **fields)  # type: ignore[arg-type] # `cluster` is not among them
