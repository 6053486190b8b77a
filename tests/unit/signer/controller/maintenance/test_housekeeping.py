"""Housekeeping: expired offers, stale claims, unclaimed keys and auto-approving bindings."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from math import inf
from typing import Any

import pytest

from common.challenge import Challenge, encode_challenge
from common.errors import ApiServerUnavailable
from common.names import CHALLENGE_ANNOTATION
from signer.controller.maintenance.housekeeping import (
    check_authority,
    delete_expired_offers,
    delete_stale_claims,
    delete_unclaimed_keys,
    enforce_auto_approve_policy,
)
from signer.errors import AuthorityShared, AuthorityUnavailable
from signer.fairness.outbox import Outbox
from signer.model import AttestedNodeObject, ClusterKey, Release
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from tests.builders import kube_objects
from tests.builders.attested_nodes import attested_node
from tests.builders.claims_cluster import ClaimsCluster
from tests.builders.endorsement_keys import endorsement_key, registration
from tests.builders.kube_objects import HOME
from tests.builders.scenario import NODE, NOW, Scenario
from tests.fakes.cluster_objects import CLUSTERS, MACHINES
from tests.fakes.csrs import FakeCsrs

CHALLENGE = Challenge(
    issued_at="",
    key="f1a2e524dce39af2",
    credential_blob=b"blob",
    encrypted_secret=b"secret",
    pcrs={"sha256": (0,)},
    event_log=False,
    tag="0123abcd",
)
BINDING = "kubeadm:node-autoapprove-bootstrap"
KEY = "ab" * 32
OLD = timedelta(minutes=15, seconds=1)
EXPIRED = timedelta(days=1, seconds=1)


def outbox() -> Outbox:
    return Outbox("not written", "name", lambda: 0.0)


def offers_after_round(age: timedelta = OLD) -> tuple[FakeCsrs, set[str]]:
    """File one CSR of each kind, run a round, and return the CSRs that are left."""
    scenario, csrs = Scenario(), FakeCsrs()
    created = NOW - age
    for csr in (
        scenario.offer_csr(name="offer", created=created),
        scenario.answer_csr(name="answer", created=created),
        replace(scenario.offer_csr(name="junk", created=created), request=b"junk"),
    ):
        csrs.put(csr)
    delete_expired_offers(list(csrs.stored.values()), csrs, outbox(), NOW)
    return csrs, set(csrs.stored)


def test_expired_offers_are_deleted_and_nothing_else() -> None:
    """Kubernetes deletes pending CSRs only after a day."""
    assert offers_after_round()[1] == {"answer", "junk"}


def test_an_offer_that_can_still_be_answered_is_kept() -> None:
    assert offers_after_round(timedelta(minutes=15))[1] == {"offer", "answer", "junk"}


def challenged_offers_after_round(challenge: str, since: timedelta) -> set[str]:
    """File an offer that waited for an operator until it was challenged; return what is left."""
    scenario, csrs = Scenario(), FakeCsrs()
    offer = scenario.offer_csr(name="offer", created=NOW - timedelta(minutes=14))
    issued = f"{NOW - since:%Y-%m-%dT%H:%M:%SZ}"
    text = challenge or encode_challenge(replace(CHALLENGE, issued_at=issued))
    csrs.put(replace(offer, annotations={CHALLENGE_ANNOTATION: text}))
    delete_expired_offers(list(csrs.stored.values()), csrs, outbox(), NOW)
    return set(csrs.stored)


def test_answered_offers_do_not_look_like_waiting_requests_for_a_quarter_of_an_hour() -> None:
    assert challenged_offers_after_round("", timedelta(minutes=5, seconds=1)) == set()


@pytest.mark.parametrize(
    ("challenge", "since"),
    [("", timedelta(minutes=5)), ("", timedelta()), ("malformed", timedelta(minutes=6))],
    ids=["its node may still answer", "challenged a moment ago", "not a challenge"],
)
def test_challenged_offer_that_may_be_needed_is_kept(challenge: str, since: timedelta) -> None:
    assert challenged_offers_after_round(challenge, since) == {"offer"}


def test_an_offer_that_changed_meanwhile_is_kept_and_the_next_one_is_deleted() -> None:
    scenario, csrs = Scenario(), FakeCsrs()
    stale = csrs.put(scenario.offer_csr(name="a", created=NOW - OLD))
    csrs.put(stale)
    other = csrs.put(scenario.offer_csr(name="b", created=NOW - OLD))
    delete_expired_offers([stale, other], csrs, outbox(), NOW)
    assert set(csrs.stored) == {"a"}


@dataclass(slots=True)
class StaleClaims:
    """AttestedNodes in the caches and in the API server, and a Cluster."""

    claims: ClaimsCluster = field(default_factory=ClaimsCluster)
    nodes: list[AttestedNodeObject] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.claims.api.put(CLUSTERS.collection_path(HOME.namespace), kube_objects.cluster())

    def put(self, name: str, not_after: timedelta, cluster: ClusterKey = HOME) -> None:
        node = attested_node(
            cluster, name, key=KEY, last_attested=NOW, not_after=NOW + not_after, machine_name=name
        )
        self.nodes.append(self.claims.put_node(node))

    def run_round(self, *, cached: bool = False) -> list[str]:
        """Return the names of the nodes whose claims have been deleted so far."""
        store = self.claims.store
        delete_stale_claims(self.nodes, store, outbox(), is_live=lambda _: cached, now=NOW)
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
    assert claims.run_round(cached=True) == []
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


@dataclass(slots=True)
class Bindings:
    """Deletes bindings, or is unavailable."""

    away: bool = False
    removed: list[str] = field(default_factory=list)
    outcomes: str = ""

    def remove(self, name: str) -> None:
        if self.away:
            raise ApiServerUnavailable("forbidden")
        self.removed.append(name)

    def run_round(self, mode: AutoApproveBindings) -> list[str]:
        policy = replace(Policy(name="test"), auto_approve_bindings=mode)
        names = [BINDING, BINDING + "-2"]
        self.outcomes = enforce_auto_approve_policy(HOME, names, policy, self.remove, outbox())
        return self.removed


@pytest.mark.parametrize(
    ("mode", "away", "outcome"),
    [
        (AutoApproveBindings.REMOVE, False, "deleted"),
        (AutoApproveBindings.REMOVE, True, "not deleted"),
        (AutoApproveBindings.ALARM, False, "not deleted"),
        (AutoApproveBindings.WAIT, False, "not deleted"),
    ],
)
def test_event_says_what_became_of_each_binding(
    mode: AutoApproveBindings, *, away: bool, outcome: str
) -> None:
    bindings = Bindings(away=away)
    bindings.run_round(mode)
    assert bindings.outcomes == f"{BINDING} ({outcome}), {BINDING}-2 ({outcome})"


@pytest.mark.parametrize("mode", AutoApproveBindings)
def test_a_binding_raises_an_alarm_with_every_policy(
    mode: AutoApproveBindings, caplog: pytest.LogCaptureFixture
) -> None:
    """A forgotten one let anyone join (OpenShift machine-config-operator #741)."""
    removed = set(Bindings().run_round(mode))
    removes = mode.name.startswith("REMOVE")
    assert removed == ({BINDING, BINDING + "-2"} if removes else set())
    alarms = [r for r in caplog.records if r.message == "auto-approving binding found"]
    assert [vars(r)["fields"]["detail"] for r in alarms] == [BINDING, BINDING + "-2"]
    assert all(vars(r)["fields"]["alarm"] for r in alarms)


def test_no_binding_that_older_nodes_need_is_deleted() -> None:
    bindings = Bindings()
    policy = Policy(name="test")
    outcomes = enforce_auto_approve_policy(
        HOME, [BINDING], policy, bindings.remove, outbox(), keep=True
    )
    assert (outcomes, bindings.removed) == (f"{BINDING} (not deleted)", [])


@pytest.mark.parametrize(
    ("policy", "events"),
    [
        (Policy(name="test", mode=PolicyMode.SERVING_ONLY), []),
        (Policy(name="test", approval=Approval.DISABLED), ["auto-approving binding found"]),
    ],
    ids=["serving only", "approvals disabled"],
)
def test_bindings_that_give_nodes_their_certificates_are_kept(
    policy: Policy, events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    bindings = Bindings()
    outcomes = enforce_auto_approve_policy(HOME, [BINDING], policy, bindings.remove, outbox())
    assert (bool(outcomes), bindings.removed) == (bool(events), [])
    assert [r.message for r in caplog.records] == events


def test_bindings_per_round_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    """A hostile cluster must not fill the log."""
    policy = replace(Policy(name="test"), auto_approve_bindings=AutoApproveBindings.REMOVE)
    bindings = Bindings()
    names = [f"{BINDING}-{n}" for n in range(1000)]
    enforce_auto_approve_policy(HOME, names, policy, bindings.remove, outbox())
    assert len(bindings.removed) == 20
    assert len(caplog.records) == 40


def test_a_binding_that_cannot_be_removed_does_not_stop_the_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Bindings(away=True).run_round(AutoApproveBindings.REMOVE)
    assert [r.message for r in caplog.records].count("not written") == 2


def test_a_shared_authority_raises_the_alarm_before_a_certificate_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(_: ClusterKey) -> object:
        raise AuthorityUnavailable("missing")

    def shared(cluster: ClusterKey) -> object:
        assert cluster == HOME
        raise AuthorityShared("shared", detail="team-b/green")

    for load in (missing, shared):
        assert check_authority(HOME, load) is not None
    (record,) = caplog.records
    fields = vars(record)["fields"]
    assert (fields["alarm"], fields["reason"], fields["detail"]) == (
        True,
        "AuthorityShared",
        "team-b/green",
    )


REGISTRATION = registration(HOME, provider_id="metal://1")


def keys_after_round(
    *names: str,
    cached: bool = False,
    **changes: Any,  # noqa: ANN401 # of any field
) -> list[str]:
    """Store a key and AttestedNodes of its holder that name keys; return what a round deletes."""
    claims, scenario = ClaimsCluster(), Scenario()
    usual = {"held_by": scenario.holder(), "last_claimed": NOW - EXPIRED}
    key = claims.put_key(endorsement_key(KEY, **{**usual, **changes}))
    for name in names:
        claims.put_node(attested_node(scenario.cluster.key, NODE, key=name, last_attested=NOW))
    delete_unclaimed_keys([key], claims.store, outbox(), is_claimed=lambda _: cached, now=NOW)
    return claims.deleted


def test_an_unclaimed_endorsement_key_is_deleted_after_a_day() -> None:
    """One Machine that is edited again and again made any number of them, and none was deleted."""
    assert keys_after_round() == [KEY]


@pytest.mark.parametrize(
    "changes",
    [
        {"last_claimed": NOW - timedelta(hours=23)},
        {"last_claimed": None},
        {"held_by": None},
        {"banned": True},
        {"registered_for": (REGISTRATION,)},
        {"released_from": (Release(cluster=HOME, provider_id=None),)},
    ],
    ids=["claimed a moment ago", "no time", "never claimed", "banned", "registered", "released"],
)
def test_an_endorsement_key_that_may_be_needed_is_kept(changes: dict[str, Any]) -> None:
    """A ban that is deleted would be no ban. Operators write registrations and releases, too."""
    assert keys_after_round(**changes) == []


def test_an_endorsement_key_that_an_attested_node_names_is_kept() -> None:
    assert keys_after_round(cached=True) == []
    assert keys_after_round(KEY) == []


def test_the_last_key_of_a_node_with_another_tpm_is_deleted() -> None:
    assert keys_after_round("cd" * 32) == [KEY]
