"""What an operator's command has read of a management cluster with one node."""

from datetime import UTC, datetime, timedelta
from typing import Any

from signer.inventory.cluster_api.machine_object import read_machine
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.management.snapshot import Snapshot
from tests.builders.attested_nodes import attested_node
from tests.builders.endorsement_keys import endorsement_key, key_holder

NOW = datetime(2026, 11, 22, tzinfo=UTC)


CLUSTER = ClusterKey(namespace="team-a", name="c1")


KEY = "ab" * 32


NODE = attested_node(
    CLUSTER,
    provider_id="test://1",
    machine_uid="u",
    key=KEY,
    not_after=NOW + timedelta(hours=1),
    last_attested=NOW,
)


HOLDER = key_holder(CLUSTER, provider_id="test://1")
METADATA = {"name": "machine-1", "namespace": "team-a", "uid": "u"}


MACHINE = read_machine(
    {"metadata": METADATA, "spec": {"clusterName": "c1", "providerID": "test://1"}}
)


def snapshot(*, machines: Any = (MACHINE,), pools: Any = (), **key: Any) -> Snapshot:  # noqa: ANN401 - parts of objects
    return Snapshot(
        clusters=[],
        machines=machines,
        pools=pools,
        nodes=[NODE],
        keys={KEY: endorsement_key(KEY, **{"held_by": HOLDER, **key})},
        signers={},
        annotations={},
    )
