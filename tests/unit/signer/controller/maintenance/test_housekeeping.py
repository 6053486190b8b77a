"""Housekeeping: expired offers, stale claims, unclaimed keys and auto-approving bindings."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
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
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.model import (
    AttestedNodeObject,
    ClusterKey,
    EndorsementKeyObject,
    MachineState,
)
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from tests.builders.endorsement_keys import registration
from tests.builders.scenario import HOME, NOW, Scenario, machine
from tests.fakes.claims import FakeClaimStore
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
class StaleClaims(KubeClaimStore):
    """Claims, and those that were deleted."""

    scenario: Scenario = field(default_factory=Scenario)
    deleted: list[str] = field(default_factory=list)
    unknown: set[object] = field(default_factory=set)
    """Provider IDs whose Machine cannot be looked up."""
    lookups: int = 0

    def machine_state(self, *arguments: object) -> MachineState:
        self.lookups += 1
        if arguments[1] in self.unknown:
            raise ApiServerUnavailable("a Machine cannot be read")
        return FakeClaimStore(store=self.scenario.store).machine_state(*arguments)  # type: ignore[arg-type]

    def delete_attested_node(self, node: AttestedNodeObject) -> None:
        self.deleted.append(node.node_name)

    def run_round(self, *, cached: bool = False) -> list[str]:
        nodes = list(self.scenario.store.nodes.values())
        delete_stale_claims(nodes, self, outbox(), is_live=lambda _: cached, now=NOW)
        return self.deleted

    def put(self, name: str, not_after: timedelta) -> None:
        holder = self.scenario.holder(node_name=name, provider_id=f"metal://{name}")
        self.scenario.put_node("ab" * 32, holder, not_after=NOW + not_after)


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
    there = machine(provider_id="metal://alive", deleting=deleting)
    claims.scenario.store.machines[HOME] = [there]
    assert claims.run_round() == []
    assert claims.lookups == 1


def test_a_claim_that_is_live_in_the_caches_costs_no_call() -> None:
    claims = StaleClaims()
    claims.put("alive", -EXPIRED)
    assert claims.run_round(cached=True) == []
    assert claims.lookups == 0


def test_claims_whose_lookup_fails_do_not_starve_the_others() -> None:
    """One Machine that cannot be read makes all lookups of its namespace fail."""
    claims = StaleClaims()
    for n in range(3):
        claims.put(f"unknown-{n}", -EXPIRED)
        claims.unknown.add(f"metal://unknown-{n}")
    claims.put("dead", -EXPIRED)
    for _ in range(200):
        claims.run_round()
    assert "dead" in claims.deleted


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


def test_serving_only_keeps_the_bindings_that_give_nodes_their_certificates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = Policy(name="test", mode=PolicyMode.SERVING_ONLY)
    bindings = Bindings()
    assert enforce_auto_approve_policy(HOME, [BINDING], policy, bindings.remove, outbox()) == ""
    assert bindings.removed == []
    assert caplog.records == []


def test_bindings_are_reported_and_kept_while_approvals_are_disabled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    policy = Policy(name="test", approval=Approval.DISABLED)
    bindings = Bindings()
    enforce_auto_approve_policy(HOME, [BINDING], policy, bindings.remove, outbox())
    assert bindings.removed == []
    assert [r.message for r in caplog.records] == ["auto-approving binding found"]


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
    def shared(cluster: ClusterKey) -> object:
        assert cluster == HOME
        raise AuthorityShared("shared", detail="team-b/green")

    check_authority(HOME, shared)
    (record,) = caplog.records
    fields = vars(record)["fields"]
    assert (fields["alarm"], fields["reason"], fields["detail"]) == (
        True,
        "AuthorityShared",
        "team-b/green",
    )


def test_an_authority_that_cannot_be_loaded_is_left_to_the_requests_that_need_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(_: ClusterKey) -> object:
        raise AuthorityUnavailable("missing")

    check_authority(HOME, missing)
    assert caplog.records == []


KEY = "ab" * 32
REGISTRATION = registration(HOME, provider_id="metal://1")


@dataclass(slots=True)
class Keys(KubeClaimStore):
    """EndorsementKeys, and those that were deleted."""

    scenario: Scenario = field(default_factory=Scenario)
    deleted: list[str] = field(default_factory=list)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        return self.scenario.store.find_node(cluster, node_name)

    def delete_endorsement_key(self, key: EndorsementKeyObject) -> None:
        assert key.uid
        self.deleted.append(key.name)

    def put(self, name: str = KEY, **changes: Any) -> None:  # noqa: ANN401 # of any field
        usual = {"held_by": self.scenario.holder(), "last_claimed": NOW - EXPIRED, "uid": "u"}
        self.scenario.put_key(name, **{**usual, **changes})

    def run_round(self, *, cached: bool = False) -> list[str]:
        keys = list(self.scenario.store.keys.values())
        delete_unclaimed_keys(keys, self, outbox(), is_claimed=lambda _: cached, now=NOW)
        return self.deleted


def test_an_unclaimed_endorsement_key_is_deleted_after_a_day() -> None:
    """One Machine that is edited again and again made any number of them, and none was deleted."""
    keys = Keys()
    keys.put()
    assert keys.run_round() == [KEY]


@pytest.mark.parametrize(
    "changes",
    [
        {"last_claimed": NOW - timedelta(hours=23)},
        {"last_claimed": None},
        {"held_by": None},
        {"banned": True},
        {"registered_for": (REGISTRATION,)},
    ],
    ids=["claimed a moment ago", "no time", "never claimed", "banned", "registered"],
)
def test_an_endorsement_key_that_may_be_needed_is_kept(changes: dict[str, Any]) -> None:
    """A ban that is deleted would be no ban; a registration is an operator's."""
    keys = Keys()
    keys.put(**changes)
    assert keys.run_round() == []


def test_an_endorsement_key_that_an_attested_node_names_is_kept() -> None:
    keys = Keys()
    keys.put()
    assert keys.run_round(cached=True) == []
    keys.scenario.put_node(KEY, keys.scenario.holder())
    assert keys.run_round() == []


def test_the_last_key_of_a_node_with_another_tpm_is_deleted() -> None:
    keys = Keys()
    keys.put()
    keys.scenario.put_node("cd" * 32, keys.scenario.holder())
    assert keys.run_round() == [KEY]
