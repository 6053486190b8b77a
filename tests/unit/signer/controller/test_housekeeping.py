"""What is done from time to time: old offers, dead claims, bindings that approve by themselves."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.housekeeping import (
    check_authority,
    delete_expired_offers,
    delete_stale_claims,
    enforce_auto_approve_policy,
)
from signer.errors import AuthorityShared, AuthorityUnavailable
from signer.model import AttestedNodeObject, ClusterKey, MachineState
from signer.policy import AutoApproveBindings, Policy
from tests.builders.scenario import HOME, NOW, Scenario, machine
from tests.fakes.claims import FakeClaimStore
from tests.fakes.csrs import FakeCsrs

BINDING = "kubeadm:node-autoapprove-bootstrap"
OLD = timedelta(minutes=15, seconds=1)
EXPIRED = timedelta(days=1, seconds=1)


def after_upkeep(age: timedelta = OLD) -> tuple[FakeCsrs, set[str]]:
    """File one CSR of each kind, tend, and return what is left."""
    scenario, csrs = Scenario(), FakeCsrs()
    created = NOW - age
    for csr in (
        scenario.offer_csr(name="offer", created=created),
        scenario.answer_csr(name="answer", created=created),
        replace(scenario.offer_csr(name="junk", created=created), request=b"junk"),
    ):
        csrs.put(csr)
    delete_expired_offers(list(csrs.stored.values()), csrs, NOW)
    return csrs, set(csrs.stored)


def test_old_offers_are_deleted_and_nothing_else() -> None:
    """Pending CSRs of custom signers live for a day otherwise."""
    assert after_upkeep()[1] == {"answer", "junk"}


def test_an_offer_that_can_still_be_answered_stays() -> None:
    assert after_upkeep(timedelta(minutes=15))[1] == {"offer", "answer", "junk"}


def test_an_offer_that_changed_meanwhile_stays_and_stops_nothing() -> None:
    scenario, csrs = Scenario(), FakeCsrs()
    behind = csrs.put(scenario.offer_csr(name="a", created=NOW - OLD))
    csrs.put(behind)
    other = csrs.put(scenario.offer_csr(name="b", created=NOW - OLD))
    delete_expired_offers([behind, other], csrs, NOW)
    assert set(csrs.stored) == {"a"}


@dataclass(slots=True)
class Removing:
    """Claims, of which some are removed."""

    scenario: Scenario = field(default_factory=Scenario)
    removed: list[str] = field(default_factory=list)
    unknown: set[object] = field(default_factory=set)
    """Provider IDs of which nobody can tell whether they live."""
    asked: int = 0

    def machine_state(self, *arguments: object) -> MachineState:
        self.asked += 1
        if arguments[1] in self.unknown:
            raise ApiServerUnavailable("a Machine cannot be read")
        return FakeClaimStore(store=self.scenario.store).machine_state(*arguments)  # type: ignore[arg-type]

    def delete_attested_node(self, dead: AttestedNodeObject) -> None:
        self.removed.append(dead.node_name)

    def tend(self, *, cached: bool = False) -> list[str]:
        nodes = list(self.scenario.store.nodes.values())
        delete_stale_claims(nodes, self, lives=lambda _: cached, now=NOW)
        return self.removed

    def put(self, name: str, not_after: timedelta) -> None:
        holder = self.scenario.holder(node_name=name, provider_id=f"metal://{name}")
        self.scenario.put_node("ab" * 32, holder, not_after=NOW + not_after)


def test_a_claim_whose_machine_is_gone_and_certificate_long_expired_is_removed() -> None:
    removing = Removing()
    removing.put("dead", -EXPIRED)
    assert removing.tend() == ["dead"]


def test_a_certificate_that_may_live_keeps_its_claim() -> None:
    """Freeing the name would let another node in beside a certificate that is still valid."""
    removing = Removing()
    removing.put("fresh", -timedelta(hours=23))
    assert removing.tend() == []
    assert removing.asked == 0


@pytest.mark.parametrize("deleting", [True, False])
def test_a_machine_that_is_there_keeps_its_claim(deleting: bool) -> None:  # noqa: FBT001
    removing = Removing()
    removing.put("alive", -EXPIRED)
    there = machine(provider_id="metal://alive", deleting=deleting)
    removing.scenario.store.machines[HOME] = [there]
    assert removing.tend() == []
    assert removing.asked == 1


def test_what_the_caches_say_is_not_asked_for() -> None:
    removing = Removing()
    removing.put("alive", -EXPIRED)
    assert removing.tend(cached=True) == []
    assert removing.asked == 0


def test_claims_that_nobody_can_tell_of_hold_up_no_others() -> None:
    """One Machine that cannot be read is enough for its whole namespace."""
    removing = Removing()
    for n in range(3):
        removing.put(f"unknown-{n}", -EXPIRED)
        removing.unknown.add(f"metal://unknown-{n}")
    removing.put("dead", -EXPIRED)
    for _ in range(200):
        with suppress(ApiServerUnavailable):
            removing.tend()
    assert "dead" in removing.removed


def test_few_claims_are_asked_for_at_once() -> None:
    removing = Removing()
    for n in range(50):
        removing.put(f"dead-{n}", -EXPIRED)
    removing.tend()
    assert removing.asked == 20


@dataclass(slots=True)
class Bindings:
    """Removes bindings, or cannot."""

    away: bool = False
    removed: list[str] = field(default_factory=list)

    def remove(self, name: str) -> None:
        if self.away:
            raise ApiServerUnavailable("forbidden")
        self.removed.append(name)

    def tend(self, mode: AutoApproveBindings) -> list[str]:
        policy = replace(Policy(name="test"), auto_approve_bindings=mode)
        enforce_auto_approve_policy(HOME, [BINDING, BINDING + "-2"], policy, self.remove)
        return self.removed


@pytest.mark.parametrize("mode", AutoApproveBindings)
def test_a_binding_is_told_whatever_the_policy(
    mode: AutoApproveBindings, caplog: pytest.LogCaptureFixture
) -> None:
    """A forgotten one let anyone join (OpenShift machine-config-operator #741)."""
    removed = Bindings().tend(mode)
    assert removed == ([BINDING, BINDING + "-2"] if mode is AutoApproveBindings.REMOVE else [])
    told = [r for r in caplog.records if r.message == "auto-approving binding found"]
    assert [vars(r)["fields"]["detail"] for r in told] == [BINDING, BINDING + "-2"]
    assert all(vars(r)["fields"]["alarm"] for r in told)


def test_thousands_of_bindings_are_told_some_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    """A hostile cluster must not fill the log."""
    policy = replace(Policy(name="test"), auto_approve_bindings=AutoApproveBindings.REMOVE)
    bindings = Bindings()
    enforce_auto_approve_policy(
        HOME, [f"{BINDING}-{n}" for n in range(1000)], policy, bindings.remove
    )
    assert len(bindings.removed) == 20
    assert len(caplog.records) == 40


def test_a_binding_that_cannot_be_removed_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Bindings(away=True).tend(AutoApproveBindings.REMOVE)
    assert [r.message for r in caplog.records].count("binding not removed") == 2


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
