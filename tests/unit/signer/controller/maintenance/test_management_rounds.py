"""Rounds for the management cluster: each replica cleans up after the Clusters that it serves."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.maintenance.management_rounds import Cleanup, ManagementRounds
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, read_cluster
from signer.inventory.cluster_api.references import InfrastructureObject, Reference
from signer.inventory.replica_records.authority_leases import AuthorityLeases
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kube.leases import LeaseClient
from signer.model import AttestedNodeObject, ClusterKey, EndorsementKeyObject
from tests.builders import kube_objects
from tests.builders.attested_nodes import attested_node
from tests.builders.claims_cluster import ClaimsCluster
from tests.builders.endorsement_keys import endorsement_key, key_holder
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

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
    holder = key_holder(cluster, provider_id="metal3://1")
    return endorsement_key(cluster.name, held_by=holder, last_claimed=LONG_AGO)


def authority_leases() -> AuthorityLeases:
    return AuthorityLeases(LeaseClient(FakeClient(FakeCluster()), "own"))


def opt_ins() -> OptIns:
    return OptIns(LeaseClient(FakeClient(FakeCluster()), "own"))


def cleanup(
    caches: FakeCaches,
    *,
    claims: ClaimsCluster | None = None,
    register: AuthorityLeases | None = None,
    seen: OptIns | None = None,
    serves: Callable[[ClusterKey], bool] = lambda _: True,
) -> Cleanup:
    """Return the cleanup of a replica that serves some Clusters."""
    return Cleanup(
        cast("ManagementCluster", caches),
        (claims or ClaimsCluster()).store,
        register or authority_leases(),
        seen or opt_ins(),
        serves=serves,
        now=lambda: NOW,
    )


@pytest.mark.parametrize(
    "sweep",
    [Cleanup.delete_stale_claims, Cleanup.delete_unclaimed_keys],
    ids=["AttestedNodes", "EndorsementKeys"],
)
def test_claims_of_another_replicas_clusters_stay(sweep: Callable[[Cleanup], None]) -> None:
    caches, claims = FakeCaches(), ClaimsCluster()
    for cache in (caches.clusters, caches.machines, caches.pools):
        cache.replace({})
    caches.nodes.replace({f"team-a/{c.name}": claims.put_node(node(c)) for c in (MINE, OTHER)})
    caches.keys.replace({c.name: claims.put_key(key(c)) for c in (MINE, OTHER)})
    sweeper = cleanup(caches, claims=claims, serves=lambda cluster: cluster == MINE)
    sweep(sweeper)
    [deleted] = claims.deleted
    assert "mine" in deleted


def test_claims_of_a_paused_cluster_stay() -> None:
    """`clusterctl move` makes the Machines of a paused Cluster after the claims."""
    caches, claims = FakeCaches(), ClaimsCluster()
    body = kube_objects.cluster(MINE.name)
    body["spec"]["paused"] = True
    caches.clusters.replace({f"team-a/{MINE.name}": read_cluster(body)})
    for cache in (caches.machines, caches.pools):
        cache.replace({})
    caches.nodes.replace({f"team-a/{c.name}": claims.put_node(node(c)) for c in (MINE, OTHER)})
    sweeper = cleanup(caches, claims=claims)
    sweeper.delete_stale_claims()
    [deleted] = claims.deleted
    assert "other" in deleted


def test_leases_of_clusters_that_do_not_exist_are_deleted() -> None:
    """Those of other replicas stay: this one may be too early to know their Clusters."""
    caches, register = FakeCaches(), authority_leases()
    present = ClusterKey(namespace="team-a", name="present")
    caches.clusters.replace({"team-a/present": read_cluster(kube_objects.cluster("present"))})
    for cluster in (MINE, OTHER, present):
        register.assign(cluster, bytes(32))
    sweeper = cleanup(caches, register=register, serves=lambda cluster: cluster != OTHER)
    sweeper.delete_authority_leases()
    assert register.clusters_with(bytes(32)) == {OTHER, present}


def test_attested_node_of_another_tenant_keeps_no_key() -> None:
    """A tenant named others' keys in its own AttestedNodes, and they used up the others' quota."""
    caches, claims = FakeCaches(), ClaimsCluster()
    unclaimed = claims.put_key(replace(key(MINE), name="ab" * 32))
    caches.keys.replace({unclaimed.name: unclaimed})
    caches.nodes.replace({"team-b/forged": node(replace(MINE, namespace="team-b"))})
    sweeper = cleanup(caches, claims=claims)
    sweeper.delete_unclaimed_keys()
    assert claims.deleted == [unclaimed.name]
    caches.nodes.replace({"team-a/node": node(OTHER)})
    sweeper.delete_unclaimed_keys()
    assert claims.deleted == [unclaimed.name]


def test_opt_in_of_a_cluster_that_opted_out_is_forgotten() -> None:
    """Its nodes may join by the bindings until it opts in again."""
    caches, seen = FakeCaches(), opt_ins()
    clusters = {
        name: read_cluster(kube_objects.cluster(name, **{CLIENT_SIGNER_ANNOTATION: signers}))
        for name, signers in (("stays", CLIENT_SIGNER), ("out", ""), ("other", ""))
    }
    caches.clusters.replace({f"team-a/{name}": c for name, c in clusters.items()})
    keys = [ClusterKey(namespace="team-a", name=name) for name in ("stays", "out", "other", "mine")]
    for cluster in keys:
        seen.note(cluster, LONG_AGO)
    sweeper = cleanup(caches, seen=seen, serves=lambda cluster: cluster != OTHER)
    sweeper.delete_opt_in_leases()
    assert [seen.note(cluster, NOW) for cluster in keys] == [LONG_AGO, NOW, LONG_AGO, NOW]


class InfrastructureUnknown(FakeCaches):
    """Caches that have not listed the infrastructure clusters."""

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Fail as the real caches do."""
        raise ApiServerUnavailable(f"{reference.kind}s are not known yet")


def test_opt_in_stays_while_the_infrastructure_cluster_is_unknown() -> None:
    """It may be what names the signer. The bindings could come back otherwise."""
    caches, seen = InfrastructureUnknown(), opt_ins()
    body = kube_objects.cluster(MINE.name)
    body["spec"]["security"] = {"kubeletAuthentication": True}
    caches.clusters.replace({str(MINE): read_cluster(body)})
    seen.note(MINE, LONG_AGO)
    cleanup(caches, seen=seen).delete_opt_in_leases()
    assert seen.note(MINE, NOW) == LONG_AGO


class Steps:
    """The steps of a round: the first one fails."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def rotate(self) -> None:
        self.done.append("rotate")
        raise ApiServerUnavailable("away")

    def delete_stale_claims(self) -> None:
        self.done.append("claims")

    def delete_unclaimed_keys(self) -> None:
        self.done.append("keys")

    def delete_authority_leases(self) -> None:
        self.done.append("authorities")

    def delete_opt_in_leases(self) -> None:
        self.done.append("opt-ins")


def test_a_failed_step_of_the_maintenance_does_not_stop_the_next_one() -> None:
    steps = Steps()
    rounds = ManagementRounds(
        cast(ChallengeKeyStore, steps), cast(Cleanup, steps), is_clock_tolerable=lambda: True
    )
    assert rounds.pause() == 60
    rounds.run()
    assert steps.done == ["rotate", "claims", "keys", "authorities", "opt-ins"]
    assert rounds.pause() == 5


def test_a_wrong_clock_rotates_no_key_and_deletes_nothing() -> None:
    """Two replicas whose clocks differ by years would rotate the challenge key in turns."""
    steps = Steps()
    ManagementRounds(
        cast(ChallengeKeyStore, steps), cast(Cleanup, steps), is_clock_tolerable=lambda: False
    ).run()
    assert steps.done == []
