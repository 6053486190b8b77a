"""Each replica cleans up after the Clusters that it serves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from signer.controller.claim_cleanup import ClaimCleanup
from signer.inventory.caches import ManagementCaches
from signer.inventory.claims import KubeClaimStore
from signer.inventory.machine import InfrastructureObject, Reference
from signer.inventory.management import ManagementCluster
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    MachineState,
    TrustBasis,
)
from tests.builders.attested_nodes import attested_node

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=9)
MINE, OTHER = (ClusterKey(namespace="team-a", name=name) for name in ("mine", "other"))


def node(cluster: ClusterKey) -> AttestedNodeObject:
    return attested_node(
        cluster,
        provider_id="metal3://1",
        key="ab" * 32,
        not_after=LONG_AGO,
        last_attested=LONG_AGO,
    )


def key(cluster: ClusterKey) -> EndorsementKeyObject:
    holder = KeyHolder(
        cluster=cluster, node_name="node-1", provider_id="metal3://1", basis=TrustBasis.FIRST_USE
    )
    return EndorsementKeyObject(
        name=cluster.name,
        resource_version="1",
        registered_for=(),
        released_from=(),
        banned=False,
        held_by=holder,
        last_claimed=LONG_AGO,
    )


class Caches(ManagementCaches):
    """Caches that the test fills."""

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        raise AssertionError(reference)


@dataclass(slots=True)
class Claims:
    """Deletes claims of Machines that are gone."""

    deleted: list[ClusterKey] = field(default_factory=list)

    def machine_state(self, *_: object) -> MachineState:
        return MachineState.ABSENT

    def delete_attested_node(self, node: AttestedNodeObject) -> None:
        self.deleted.append(node.cluster)

    def attested_node(self, *_: object) -> None:
        return None

    def delete_endorsement_key(self, key: EndorsementKeyObject) -> None:
        assert key.held_by is not None
        self.deleted.append(key.held_by.cluster)


@pytest.mark.parametrize(
    "sweep",
    [ClaimCleanup.delete_stale_claims, ClaimCleanup.delete_unclaimed_keys],
    ids=["AttestedNodes", "EndorsementKeys"],
)
def test_claims_of_another_replicas_clusters_stay(sweep: Callable[[ClaimCleanup], None]) -> None:
    caches, claims = Caches(), Claims()
    for cache in (caches.clusters, caches.machines, caches.pools):
        cache.replace({})
    caches.nodes.replace({f"team-a/{c.name}": node(c) for c in (MINE, OTHER)})
    caches.keys.replace({c.name: key(c) for c in (MINE, OTHER)})
    cleanup = ClaimCleanup(
        cast("ManagementCluster", caches),
        cast("KubeClaimStore", claims),
        serves=lambda cluster: cluster == MINE,
        now=lambda: NOW,
    )
    sweep(cleanup)
    assert claims.deleted == [MINE]
