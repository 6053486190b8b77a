"""A ban is reported on the Machine whose node has the key, and on no other."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from signer.controller.ban_reports import note_bans
from signer.inventory.caches import ManagementCaches
from signer.inventory.machine import InfrastructureObject, Reference, read_machine
from signer.inventory.machine_status import MachineCondition
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    TrustBasis,
)
from tests.builders.attested_nodes import attested_node

CLUSTER = ClusterKey(namespace="team-a", name="blue")
KEY = EndorsementKeyObject(
    name="ab" * 32,
    resource_version="1",
    registered_for=(),
    released_from=(),
    banned=True,
    held_by=KeyHolder(
        cluster=CLUSTER, node_name="node-1", provider_id="metal3://1", basis=TrustBasis.RECORD
    ),
)
NODE = attested_node(
    CLUSTER,
    provider_id="metal3://1",
    machine_uid="u",
    key=KEY.name,
    last_attested=datetime(2026, 11, 22, tzinfo=UTC),
)


class Caches(ManagementCaches):
    """Caches that the test fills."""

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        raise AssertionError(reference)


def noted(
    *,
    key: EndorsementKeyObject = KEY,
    node: AttestedNodeObject | None = NODE,
    serves: Callable[[ClusterKey], bool] = lambda _: True,
) -> list[MachineCondition]:
    caches = Caches()
    metadata = {"name": "machine-1", "namespace": "team-a", "uid": "u"}
    spec = {"clusterName": "blue", "providerID": "metal3://1"}
    machine = read_machine({"metadata": metadata, "spec": spec})
    caches.machines.replace({"team-a/machine-1": machine})
    caches.keys.replace({key.name: key})
    caches.nodes.replace({} if node is None else {f"team-a/{node.name}": node})
    conditions: list[MachineCondition] = []
    note_bans(caches, conditions.append, serves)
    return conditions


def test_ban_is_noted_for_the_machine_of_the_node() -> None:
    [condition] = noted()
    assert (condition.namespace, condition.name, condition.uid) == ("team-a", "machine-1", "u")
    assert (condition.attested, condition.by_operator) == (False, True)
    assert condition.reason == "EndorsementKeyBanned"


def test_ban_of_a_cluster_of_another_replica_is_not_noted() -> None:
    assert noted(serves=lambda cluster: cluster != CLUSTER) == []


@pytest.mark.parametrize(
    ("key", "node"),
    [
        (replace(KEY, banned=False), NODE),
        (replace(KEY, held_by=None), NODE),
        (KEY, None),
        (KEY, replace(NODE, endorsement_key="cd" * 32)),
        (KEY, replace(NODE, machine_name="machine-0")),
    ],
    ids=["not banned", "not held", "never attested", "another TPM since", "a former Machine"],
)
def test_other_machines_are_not_noted(
    key: EndorsementKeyObject, node: AttestedNodeObject | None
) -> None:
    assert noted(key=key, node=node) == []
