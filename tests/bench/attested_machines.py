"""Machines whose nodes have attested, as the API servers of a fleet hold them."""

import hashlib
from datetime import UTC, datetime
from typing import Any, Final

from signer.kinds.attested_node import encode_attested_node
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import KeyHolder, TrustBasis, encode_endorsement_key
from tests.builders.attested_nodes import attested_node
from tests.harness import objects

Json = dict[str, Any]

NODES: Final = "/api/v1/nodes"
_MANAGED_FIELDS: Final = [{"manager": "manager", "fieldsV1": {f"f:{n}": {} for n in range(320)}}]
"""About the 4 KB that the managers of Cluster API add to a Machine."""


_PUBLIC_KEY: Final = "-" * 178
"""As long as the PEM of a P-256 key, which the signer does not read."""


def machine(cluster: ClusterKey, number: int) -> Json:
    """Return a Machine."""
    spec = objects.Machine(
        _node_name(number),
        addresses=[
            ("Hostname", _node_name(number)),
            ("InternalDNS", f"{_node_name(number)}.{cluster.name}.example"),
            ("InternalIP", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"),
            ("ExternalIP", f"2001:db8::{number:x}"),
        ],
    )
    body = objects.machine(cluster.name, spec, provider_id=_provider_id(cluster, number))
    body["metadata"]["managedFields"] = _MANAGED_FIELDS
    body["status"]["nodeRef"] = {"name": _node_name(number)}
    return body


def claims(cluster: ClusterKey, number: int) -> tuple[Json, Json]:
    """Return an EndorsementKey and an AttestedNode."""
    name, provider_id, now = _node_name(number), _provider_id(cluster, number), datetime.now(UTC)
    digest = hashlib.sha256(f"{cluster.name}/{number}".encode()).hexdigest()
    holder = KeyHolder.of(
        cluster, node_name=name, provider_id=provider_id, basis=TrustBasis.CERTIFICATE
    )
    node = attested_node(
        cluster,
        name,
        resource_version="",
        provider_id=provider_id,
        machine_name=name,
        key=digest,
        credential_ids=(f"X509SHA256={digest}",),
        last_attested=now,
    )
    key = encode_endorsement_key(digest, _PUBLIC_KEY, holder, now)
    return key, encode_attested_node(node, "")


def node(cluster: ClusterKey, number: int) -> Json:
    """Return a Node of the workload cluster."""
    return {
        "metadata": {"name": _node_name(number), "managedFields": _MANAGED_FIELDS},
        "spec": {"providerID": _provider_id(cluster, number)},
    }


def _node_name(number: int) -> str:
    return f"node-{number}"


def _provider_id(cluster: ClusterKey, number: int) -> str:
    return f"bench://{cluster.name}/{_node_name(number)}"
