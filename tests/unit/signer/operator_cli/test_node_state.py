"""The state of a node that has attested."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.inventory.machine import read_machine, read_pool
from signer.model import (
    ClusterKey,
    EndorsementKeyObject,
    Release,
)
from signer.operator_cli.commands.nodes import node_state
from signer.operator_cli.snapshot import Snapshot
from tests.builders.attested_nodes import attested_node

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
METADATA = {"name": "machine-1", "namespace": "team-a", "uid": "u"}
MACHINE = read_machine(
    {"metadata": METADATA, "spec": {"clusterName": "c1", "providerID": "test://1"}}
)
POOL = read_pool(
    {"metadata": METADATA, "spec": {"clusterName": "c1", "providerIDList": ["test://1"]}}
)


def snapshot(*, machines: Any = (MACHINE,), pools: Any = (), **key: Any) -> Snapshot:  # noqa: ANN401 - parts of objects
    stored = {"registered_for": (), "released_from": (), "banned": False, "held_by": None, **key}
    return Snapshot(
        clusters=[],
        machines=machines,
        pools=pools,
        nodes=[NODE],
        keys={KEY: EndorsementKeyObject(name=KEY, resource_version="1", **stored)},
        signers={},
        annotations={},
    )


@pytest.mark.parametrize(
    ("objects", "now", "state"),
    [
        (snapshot(), NOW, "Attested"),
        (snapshot(), NODE.not_after, "Expired"),
        (snapshot(machines=[]), NOW, "MachineGone"),
        (snapshot(machines=[], pools=[POOL]), NOW, "Attested"),
        (snapshot(banned=True), NOW, "Banned"),
        (
            snapshot(released_from=(Release(cluster=CLUSTER, provider_id=None),)),
            NOW,
            "Released",
        ),
        (
            snapshot(released_from=(Release(cluster=CLUSTER, provider_id="test://2"),)),
            NOW,
            "Attested",
        ),
    ],
    ids=["valid", "expired", "no Machine", "pool", "banned", "released", "other released"],
)
def test_state_of_a_node(objects: Snapshot, now: datetime, state: str) -> None:
    assert node_state(NODE, objects, now) == state
