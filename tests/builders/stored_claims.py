"""AttestedNodes as the API server returns them."""

from datetime import UTC, datetime
from typing import Any

from signer.kinds.attested_node import (
    AttestedNodeObject,
    BootCounters,
    BootState,
    MeasuredValues,
    Refusal,
    encode_attested_node,
)
from signer.kinds.csr import credential_id
from signer.kinds.endorsement_key import TrustBasis
from tests.builders.attested_nodes import attested_node
from tests.builders.kube_objects import DIGEST, HOME, PROVIDER_ID

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


NODE = attested_node(
    HOME,
    resource_version="7",
    provider_id=PROVIDER_ID,
    key=DIGEST,
    credential_ids=(credential_id(b"first"), credential_id(b"second")),
    last_attested=NOW,
    boot=BootCounters(reset_count=3, restart_count=0, firmware_version="0x0002000300040005"),
    policy="edge",
    basis=TrustBasis.CERTIFICATE_NAME,
    boot_state=BootState.VERIFIED,
    measured=MeasuredValues(pcrs={"sha256": {"4": "ab" * 32}}, firmware="1.4", secure_boot=True),
    renewal_deadline=NOW,
    last_refusal=Refusal(
        reason="PcrPolicyMismatch",
        message="PCR 4 is not allowed",
        time=NOW,
        request="csr-1",
        measured=MeasuredValues(
            pcrs={"sha256": {"4": "cd" * 32}},
            secure_boot=False,
            platform_keys=("01" * 32,),
            signature_databases=("02" * 48,),
            boot_loaders=("03" * 32, "04" * 64),
        ),
    ),
)


def stored(node: AttestedNodeObject) -> dict[str, Any]:
    """Return the body of an AttestedNode as the API server returns it."""
    return encode_attested_node(node, node.resource_version)
