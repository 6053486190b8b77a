"""Rounds for the management cluster: each replica cleans up after the Clusters that it serves."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from common.names import CLIENT_SIGNER
from signer.clusters.management_cluster import ManagementCluster
from signer.controller.maintenance.management_rounds import Cleanup, ManagementRounds
from signer.controller.steps import Steps
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, read_cluster
from signer.inventory.cluster_api.machine_object import MachineObject, read_machine
from signer.inventory.cluster_api.references import InfrastructureObject, Reference
from signer.inventory.replica_records.authority_leases import AuthorityLeases
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.inventory.replica_records.opt_in_leases import OptIns
from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, LiftedBan, Release
from signer.kube.leases import LeaseClient
from signer.kube.unreadable import Unreadable
from tests.builders import kube_objects
from tests.builders.attested_nodes import attested_node
from tests.builders.claims_cluster import ClaimsCluster
from tests.builders.endorsement_keys import BAN, endorsement_key, key_holder, registration
from tests.builders.kube_objects import HOME
from tests.fakes.caches import FakeCaches
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import CLUSTERS, MACHINES

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NODE, KEY = "node-1", "ab" * 32
EXPIRED = timedelta(days=1, seconds=1)
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
    holder = key_holder(cluster, provider_id="metal3://1", last_claimed=LONG_AGO)
    return endorsement_key(cluster.name, held_by=holder)


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


def test_newest_claim_of_a_cluster_stays() -> None:
    """Without it, the marker in the workload cluster would be newer than all claims."""
    for cluster_exists in (True, False):
        caches, claims = FakeCaches(), ClaimsCluster()
        for cache in (caches.machines, caches.pools):
            cache.replace({})
        present = read_cluster({"metadata": {"name": "mine", "namespace": "team-a", "uid": "u"}})
        caches.clusters.replace({str(MINE): present} if cluster_exists else {})
        newest = claims.store.create_attested_node(node(MINE))
        older = claims.store.create_attested_node(
            newest.replace(node_name="node-2", name="node-2.mine", last_attested=LONG_AGO - EXPIRED)
        )
        caches.nodes.replace({f"team-a/{n.name}": n for n in (newest, older)})
        cleanup(caches, claims=claims).delete_stale_claims()
        assert claims.store.attested_node(MINE, "node-2") is None
        kept = claims.store.attested_node(MINE, newest.node_name)
        assert (kept is not None) == cluster_exists


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


def test_lease_of_a_cluster_that_cannot_be_read_stays() -> None:
    """The Cluster may exist; its authority would count as new."""
    caches, register = FakeCaches(), authority_leases()
    caches.clusters.replace({})
    caches.clusters.refuse(str(MINE), Unreadable(key=str(MINE), problem="nested too deeply"))
    other = replace(OTHER, namespace="team-b")
    for cluster in (MINE, other):
        register.assign(cluster, bytes(32))
    cleanup(caches, register=register).delete_authority_leases()
    assert register.clusters_with(bytes(32)) == {MINE}


def test_attested_node_of_another_tenant_keeps_no_key() -> None:
    """A tenant named others' keys in its own AttestedNodes, and they used up the others' quota."""
    caches, claims = FakeCaches(), ClaimsCluster()
    unclaimed = claims.put_key(key(MINE).replace(name="ab" * 32))
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


class FakeRound:
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


def rounds_of(made: FakeRound, *, trusted: bool) -> ManagementRounds:
    steps = Steps(lambda: trusted)
    return ManagementRounds(steps, cast(ChallengeKeyStore, made), cast(Cleanup, made))


def test_a_failed_step_of_the_maintenance_does_not_stop_the_next_one() -> None:
    made = FakeRound()
    rounds = rounds_of(made, trusted=True)
    assert rounds.pause() == 60
    rounds.run()
    assert made.done == ["rotate", "claims", "keys", "authorities", "opt-ins"]
    assert rounds.pause() == 5


def test_a_wrong_clock_rotates_no_key_and_deletes_no_claim() -> None:
    """Two replicas whose clocks differ by years would rotate the challenge key in turns."""
    made = FakeRound()
    rounds_of(made, trusted=False).run()
    assert made.done == ["authorities", "opt-ins"]


@dataclass(slots=True)
class StaleClaims:
    """AttestedNodes in the caches and in the API server, and a Cluster."""

    claims: ClaimsCluster = field(default_factory=ClaimsCluster)
    nodes: list[AttestedNodeObject] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims.api.put(CLUSTERS.collection_path(HOME.namespace), kube_objects.cluster())

    def put(
        self,
        name: str,
        not_after: timedelta,
        cluster: ClusterKey = HOME,
        **changes: Any,  # noqa: ANN401 # fields of AttestedNodeObject
    ) -> None:
        fields = {"not_after": NOW + not_after, "machine_name": name} | changes
        node = attested_node(cluster, name, key=KEY, last_attested=NOW, **fields)
        self.nodes.append(self.claims.put_node(node))

    def run_round(self, *machines: MachineObject) -> list[str]:
        """Return the names of the nodes whose claims have been deleted so far."""
        caches = FakeCaches()
        for cache in (caches.clusters, caches.pools):
            cache.replace({})
        caches.machines.replace({machine.name: machine for machine in machines})
        caches.nodes.replace({node.name: node for node in self.nodes})
        cleanup(caches, claims=self.claims).delete_stale_claims()
        names = {node.name: node.node_name for node in self.nodes}
        return [names[name] for name in self.claims.deleted]

    @property
    def lookups(self) -> int:
        return sum("/clusters/" in request.path for request in self.claims.api.requests)


def test_a_claim_without_machine_and_with_an_expired_certificate_is_deleted() -> None:
    claims = StaleClaims()
    claims.put("dead", -EXPIRED)
    assert claims.run_round() == ["dead"]


def test_a_claim_is_kept_for_a_day_after_its_certificate_expired() -> None:
    """`clusterctl move` may create the Machines later than the claims."""
    claims = StaleClaims()
    claims.put("fresh", -timedelta(hours=23))
    assert claims.run_round() == []
    assert claims.lookups == 0


def test_a_claim_is_kept_while_its_name_has_other_certificates() -> None:
    """A new Machine of this name could not replace a claim that the list still has."""
    claims = StaleClaims()
    claims.put("taken-over", -EXPIRED, others_end_at=NOW)
    assert claims.run_round() == []


@pytest.mark.parametrize("deleting", [True, False])
def test_a_claim_with_a_machine_is_kept(deleting: bool) -> None:  # noqa: FBT001
    claims = StaleClaims()
    claims.put("alive", -EXPIRED)
    body = kube_objects.machine("alive")
    body["spec"]["providerID"] = claims.nodes[0].provider_id
    if deleting:
        body["metadata"]["deletionTimestamp"] = NOW.isoformat()
    claims.claims.api.put(MACHINES.collection_path(HOME.namespace), body)
    assert claims.run_round() == []
    assert claims.lookups == 1


def test_a_claim_that_is_live_in_the_caches_costs_no_call() -> None:
    claims = StaleClaims()
    claims.put("alive", -EXPIRED)
    body = kube_objects.machine("alive")
    body["spec"]["providerID"] = claims.nodes[0].provider_id
    assert claims.run_round(read_machine(body)) == []
    assert claims.claims.api.requests == []


def test_claims_whose_lookup_fails_do_not_starve_the_others() -> None:
    """One Machine that cannot be read makes all lookups of its namespace fail."""
    claims = StaleClaims()
    for n in range(3):
        claims.put(f"unknown-{n}", -EXPIRED, replace(HOME, namespace="team-b"))
    claims.claims.api.intercept(503, "GET", "/team-b/", times=inf)
    claims.put("dead", -EXPIRED)
    for _ in range(200):
        claims.run_round()
    assert "dead" in claims.run_round()


def test_claims_per_round_are_limited() -> None:
    claims = StaleClaims()
    for n in range(50):
        claims.put(f"dead-{n}", -EXPIRED)
    claims.run_round()
    assert claims.lookups == 20


REGISTRATION = registration(HOME, provider_id="metal://1")


def held(last_claimed: datetime) -> KeyHolder:
    """Return a holder that claimed the key last at this time."""
    return key_holder(HOME, node_name=NODE, since=NOW - 2 * EXPIRED, last_claimed=last_claimed)


def keys_after_round(
    *names: str,
    cached: bool = False,
    **changes: Any,  # noqa: ANN401 # of any field
) -> list[str]:
    """Return what a round deletes of a key whose holder has AttestedNodes that name keys.

    They are in the caches if `cached`, else on the API server.
    """
    claims, caches = ClaimsCluster(), FakeCaches()
    stored = claims.put_key(endorsement_key(KEY, **{"held_by": held(NOW - EXPIRED), **changes}))
    caches.keys.replace({KEY: stored})
    nodes = [attested_node(HOME, NODE, key=name, last_attested=NOW) for name in names]
    caches.nodes.replace({each.name: each for each in nodes if cached})
    for each in nodes if not cached else ():
        claims.put_node(each)
    cleanup(caches, claims=claims).delete_unclaimed_keys()
    return claims.deleted


def test_an_unclaimed_endorsement_key_is_deleted_after_a_day() -> None:
    """One Machine that is edited again and again made any number of them, and none was deleted."""
    assert keys_after_round() == [KEY]


@pytest.mark.parametrize(
    "changes",
    [
        {"held_by": held(NOW - timedelta(hours=23))},
        {"held_by": key_holder(HOME, node_name=NODE, since=NOW)},
        {"held_by": None},
        {"banned": BAN},
        {"registered_for": (REGISTRATION,)},
        {"released_from": (Release.of(HOME, provider_id=None),)},
        {"ban_lifted": LiftedBan(at=NOW - timedelta(days=9), certificates_too=False)},
    ],
    ids=[
        *("claimed a moment ago", "claimed once", "never claimed"),
        *("banned", "registered", "released", "lifted"),
    ],
)
def test_an_endorsement_key_that_may_be_needed_is_kept(changes: dict[str, Any]) -> None:
    """A ban that is deleted would be no ban. Operators write registrations and releases, too."""
    assert keys_after_round(**changes) == []


def test_an_endorsement_key_that_an_attested_node_names_is_kept() -> None:
    for cached in (True, False):
        assert keys_after_round(KEY, cached=cached) == []


def test_the_last_key_of_a_node_with_another_tpm_is_deleted() -> None:
    assert keys_after_round("cd" * 32) == [KEY]
