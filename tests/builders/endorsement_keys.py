"""EndorsementKeys and their holders, as the signer reads them."""

from typing import Any, Final

from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import (
    Ban,
    EndorsementKeyObject,
    KeyHolder,
    Registration,
    TrustBasis,
)

BAN: Final = Ban(reason="lost")


def key_holder(cluster: ClusterKey, **changes: Any) -> KeyHolder:  # noqa: ANN401 # fields of KeyHolder
    """Return the holder of a key in a Cluster, with changes of its fields."""
    holder = KeyHolder.of(
        cluster,
        node_name="node-1",
        provider_id="test://machine-1",
        basis=TrustBasis.REGISTERED,
    )
    return holder.replace(**changes)


def endorsement_key(name: str, **changes: Any) -> EndorsementKeyObject:  # noqa: ANN401 # fields of it
    """Return a key that is neither registered nor held, with changes of its fields."""
    return EndorsementKeyObject(name=name, resource_version="1").replace(**changes)


def registration(cluster: ClusterKey, **fields: str | None) -> Registration:
    """Return a registration in a Cluster; the fields that are not given match nothing."""
    return Registration.of(cluster, **fields)
