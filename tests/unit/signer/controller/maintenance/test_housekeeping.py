"""Housekeeping of a workload cluster: expired offers and auto-approving bindings."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from common.challenge import Challenge, encode_challenge
from common.errors import ApiServerUnavailable
from common.names import CHALLENGE_ANNOTATION
from signer.controller.maintenance.housekeeping import (
    check_authority,
    delete_expired_offers,
    enforce_auto_approve_policy,
)
from signer.errors import AuthorityShared, AuthorityUnavailable
from signer.fairness.outbox import Outbox
from signer.kinds.cluster import ClusterKey
from signer.policy.policy import Approval, AutoApproveBindings, Policy, PolicyMode
from tests.builders.kube_objects import HOME
from tests.builders.scenario import NOW, Scenario
from tests.fakes.csrs import FakeCsrs

CHALLENGE = Challenge(
    issued_at="",
    key="f1a2e524dce39af2",
    credential_blob=b"blob",
    encrypted_secret=b"secret",
    pcrs={"sha256": (0,)},
    event_log=False,
    pcr_signatures=False,
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
