"""Claims of nodes as a cloud names them, for benches of what claims cost."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from signer.kinds.attested_node import AttestedNodeObject, BootCounters
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import credential_id
from signer.kinds.endorsement_key import KeyHolder, TrustBasis
from tests.builders.attested_nodes import attested_node

CLUSTER: Final = ClusterKey(namespace="bench", name="workload")
LIFETIME: Final = timedelta(days=7)


def holder(number: int) -> KeyHolder:
    """Return the node of this number, as an EndorsementKey names it."""
    return KeyHolder.of(
        CLUSTER,
        node_name=f"workload-md-0-7k2lq-{number:05}",
        provider_id=f"aws:///eu-central-1a/i-0a1b2c3d4e5f{number:05}",
        basis=TrustBasis.REGISTERED,
    )


def numbered_node(number: int) -> AttestedNodeObject:
    """Return what the signer writes of a node with two certificates."""
    now, node = datetime.now(UTC), holder(number)
    return attested_node(
        CLUSTER,
        node.node_name,
        resource_version="",
        provider_id=node.provider_id,
        machine_name=node.node_name,
        machine_uid="0f8fad5b-d9cb-469f-a165-70867728950e",
        key=sha256(b"%d" % number).hexdigest(),
        credential_ids=tuple(credential_id(b"%d %d" % (number, n)) for n in range(2)),
        not_after=now + LIFETIME,
        last_attested=now,
        boot=BootCounters(reset_count=12, restart_count=3, firmware_version="0x0000000000000007"),
    )
