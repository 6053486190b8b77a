"""Claims and requests of keys as a tenant could forge them."""

from datetime import UTC, datetime
from typing import Any

from signer.kinds.attested_node import encode_attested_node
from signer.kinds.cluster import ClusterKey
from tests.builders.attested_nodes import attested_node
from tests.harness.fleet import WorkloadTenant

REQUESTS = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{}/endorsementkeyrequests"


def claim_body(tenant: WorkloadTenant, node_name: str, key: str) -> dict[str, Any]:
    """Return an AttestedNode that names a key."""
    cluster = ClusterKey(namespace=tenant.namespace, name=tenant.name)
    node = attested_node(cluster, node_name, key=key, last_attested=datetime.now(UTC))
    return encode_attested_node(node, "")


def request_body(name: str) -> dict[str, Any]:
    """Return an EndorsementKeyRequest as a tenant could forge it: its certificate is trusted."""
    offered = {
        "sha256": "ab" * 32,
        "nodeName": name,
        "requester": "system:bootstrap:abcdef",
        "firstSeen": "2026-11-22T00:00:00Z",
        "certificate": {"status": "Trusted", "manufacturer": "IFX"},
    }
    return {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKeyRequest",
        "metadata": {"name": name},
        "spec": {
            "clusterName": "workload",
            "machineUID": "u",
            "providerID": "test://1",
            "keys": [offered],
        },
    }
