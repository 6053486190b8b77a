"""AttestedNodes that tests put into caches and stores."""

from datetime import datetime, timedelta
from typing import Any

from signer.kinds.attested_node import AttestedNodeObject, attested_node_name
from signer.kinds.cluster import ClusterKey


def attested_node(
    cluster: ClusterKey,
    node_name: str = "node-1",
    *,
    key: str,
    last_attested: datetime,
    **changes: Any,  # noqa: ANN401 # fields of AttestedNodeObject
) -> AttestedNodeObject:
    """Return the claim of a node with an endorsement key, with changes of its fields.

    Unless changed, its certificate is valid for a week from `last_attested`.
    """
    node = AttestedNodeObject(
        name=attested_node_name(cluster, node_name),
        resource_version="1",
        namespace=cluster.namespace,
        cluster_name=cluster.name,
        node_name=node_name,
        provider_id="test://machine-1",
        machine_name="machine-1",
        machine_uid="uid-1",
        endorsement_key=key,
        not_after=last_attested + timedelta(days=7),
        last_attested=last_attested,
    )
    return node.replace(**changes)
