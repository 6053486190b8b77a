"""A management cluster with claims, and the claims as the signer has read them."""

from dataclasses import dataclass, field

from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.attested_node import ATTESTED_NODES, AttestedNodeObject, encode_attested_node
from signer.kinds.endorsement_key import (
    ENDORSEMENT_KEYS,
    EndorsementKeyObject,
    EndorsementKeySpec,
)
from signer.kinds.record import encode
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

LONG_AGO = "2026-01-01T00:00:00Z"
"""When all objects were created."""


@dataclass
class ClaimsCluster:
    """The API server, and the store that writes to it."""

    api: FakeCluster = field(default_factory=lambda: FakeCluster(now=lambda: LONG_AGO))
    store: KubeClaimStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = KubeClaimStore(FakeClient(self.api))

    def put_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Store an AttestedNode."""
        path = ATTESTED_NODES.collection_path(node.cluster.namespace)
        self.api.put(path, encode_attested_node(node, ""))
        read = self.store.attested_node(node.cluster, node.node_name)
        assert read is not None
        self.api.requests.clear()
        return read

    def put_key(self, key: EndorsementKeyObject) -> EndorsementKeyObject:
        """Store an EndorsementKey with these fields of its spec."""
        self.api.put(
            ENDORSEMENT_KEYS.collection_path(),
            {"metadata": {"name": key.name}, "spec": encode(key, EndorsementKeySpec)},
        )
        read = self.store.endorsement_key(key.name)
        assert read is not None
        self.api.requests.clear()
        return read

    @property
    def deleted(self) -> list[str]:
        """The names of the objects that were deleted, in order."""
        deletions = [request for request in self.api.requests if request.method == "DELETE"]
        return [request.path.rpartition("/")[2] for request in deletions]
