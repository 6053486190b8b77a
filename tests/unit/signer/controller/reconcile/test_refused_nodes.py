"""A refusal counts for a node only if the request is proved to be of that node."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from signer.controller.queue.workqueue import DONE
from signer.kinds.attested_node import MeasuredValues, Refusal
from signer.kinds.csr import credential_id
from signer.policy.policy import AccessReview, Approval, EventLogRules, PcrMode
from signer.verify.requests.recognize import CsrKind
from tests.builders.reconciler import ReconcilerFixture
from tests.builders.renewing_node import COPIED, KNOWN, claim_of, of_a_node
from tests.builders.scenario import OFFER_UID, record_of
from tests.builders.software_tpm import attestation_key, endorsement_key

BOOTSTRAPPER = "system:bootstrap:abcdef"


def enforce_pcrs(fixture: ReconcilerFixture) -> None:
    policy = fixture.scenario.policy
    pcrs = replace(policy.pcrs, mode=PcrMode.ENFORCE, allowed={"sha256": {}})
    fixture.scenario.policy = replace(policy, pcrs=pcrs)


def enforce_event_log(fixture: ReconcilerFixture) -> None:
    rules = EventLogRules(
        secure_boot=True,
        platform_keys=frozenset(),
        signature_databases=frozenset(),
        boot_loaders=frozenset(),
    )
    fixture.scenario.policy = replace(fixture.scenario.policy, event_log=rules)


def rejoining() -> ReconcilerFixture:
    """Return a node whose certificate has expired, so that it has only a bootstrap token."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.username, fixture.scenario.credential_id = BOOTSTRAPPER, ""
    fixture.scenario.groups = frozenset({"system:bootstrappers", "system:authenticated"})
    enforce_pcrs(fixture)
    return fixture


def test_denied_renewal_is_noted_for_its_claim() -> None:
    fixture = of_a_node(KNOWN)
    enforce_pcrs(fixture)
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == DONE
    [(node, refusal)] = fixture.refusals
    assert node == claim_of(fixture)
    assert refusal == Refusal(
        reason="PcrPolicyMismatch",
        message=fixture.csrs.stored[csr.name].conditions["Denied"].message,
        time=fixture.scenario.now,
        request=csr.name,
        measured=MeasuredValues(
            pcrs={
                bank: {str(index): value.hex() for index, value in values.items()}
                for bank, values in fixture.scenario.pcrs.items()
            }
        ),
    )


def test_operators_see_every_reason_and_the_node_sees_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing more is asked or written for the further reasons."""
    fixture = of_a_node(KNOWN)
    enforce_pcrs(fixture)
    enforce_event_log(fixture)
    fixture.scenario.policy = replace(fixture.scenario.policy, access_review=AccessReview.REQUIRE)
    fixture.scenario.change_key(banned=True)
    before = (dict(fixture.scenario.store.keys), claim_of(fixture))
    with caplog.at_level("INFO"):
        csr = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    denied = csr.conditions["Denied"]
    reasons = (denied.reason, "EventLogMissing", "EndorsementKeyBanned")
    assert denied.reason == "PcrPolicyMismatch"
    assert not any(reason in f"{csr} {fixture.csrs.events}" for reason in reasons[1:])
    [(_, refusal)] = fixture.refusals
    assert refusal.reason == denied.reason
    assert refusal.measured is not None
    [condition] = fixture.machines
    assert condition.message == refusal.message
    assert [reason for reason in reasons if reason in condition.message] == list(reasons[1:])
    fields = vars(caplog.records[-1])["fields"]
    assert [further["reason"] for further in fields["furtherReasons"]] == list(reasons[1:])
    assert (fixture.csrs.reads, fixture.csrs.writes) == ([], ["Denied PcrPolicyMismatch"])
    assert (dict(fixture.scenario.store.keys), claim_of(fixture)) == before


def test_values_of_another_tpm_are_not_noted_for_the_node_whose_certificate_filed_them() -> None:
    """Else a copy of a node's key could make an operator accept what no TPM of the fleet has."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.ek = endorsement_key()
    enforce_pcrs(fixture)
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    [(node, refusal)] = fixture.refusals
    assert (node, refusal.reason) == (claim_of(fixture), "PcrPolicyMismatch")
    assert refusal.measured is None


def test_refusal_for_another_reason_has_no_values() -> None:
    fixture = of_a_node(KNOWN)
    enforce_event_log(fixture)
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    [(_, refusal)] = fixture.refusals
    assert (refusal.reason, refusal.measured) == ("EventLogMissing", None)


def test_renewal_that_waits_is_noted_each_time() -> None:
    """The claim decides whether that is news: this replica may not have written it."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.change_machine(registered_keys=())
    csr = fixture.file(fixture.scenario.offer_csr())
    for _ in range(2):
        fixture.reconcile(fixture.csrs.stored[csr.name])
    assert [refusal.reason for _, refusal in fixture.refusals] == [
        "EndorsementKeyNotRegistered"
    ] * 2


def test_malformed_request_of_a_node_is_noted() -> None:
    fixture = of_a_node(KNOWN)
    fixture.reconcile(fixture.file(fixture.scenario.csr(b"not a request")))
    [(node, _)] = fixture.refusals
    assert node == claim_of(fixture)


def test_denied_answer_is_noted_without_a_certificate_if_its_tpm_is_that_of_the_claim() -> None:
    fixture = rejoining()
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    [(node, refusal)] = fixture.refusals
    assert (node, refusal.reason) == (claim_of(fixture), "PcrPolicyMismatch")


def offer_with_a_token() -> ReconcilerFixture:
    """Name the node and the public part of its endorsement key, which anyone can read."""
    fixture = rejoining()
    fixture.scenario.change_machine(registered_keys=())
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


def forged_quote() -> ReconcilerFixture:
    """Answer with another attestation key than the challenge was made for."""
    fixture = rejoining()
    forger = attestation_key()
    statement = fixture.scenario.attest().encode()
    answer = fixture.scenario.answer(
        statement, ak_public=forger.tpm2b, signature=forger.sign(statement)
    )
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr(answer)))
    return fixture


def another_tpm() -> ReconcilerFixture:
    """Prove a TPM that an operator registered for the same Machine, and not that of the claim."""
    fixture = rejoining()
    fixture.scenario.ek = endorsement_key()
    fixture.scenario.change_machine(registered_keys=(record_of(fixture.scenario.ek),))
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    return fixture


def offer_with(credential: str) -> ReconcilerFixture:
    fixture = of_a_node(credential)
    fixture.scenario.change_machine(registered_keys=())
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


def another_node() -> ReconcilerFixture:
    """Be a node with a certificate of its own, and request the name of this one."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.as_node("node-2")
    fixture.scenario.credential_id = credential_id(b"of node-2")
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


def no_node() -> ReconcilerFixture:
    """Be a user with the name of a node, outside of the group of nodes."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.groups = frozenset({"system:authenticated"})
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


def serving() -> ReconcilerFixture:
    """Be refused a serving certificate, which is no renewal."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.for_serving("192.0.2.99")
    fixture.reconcile(fixture.file(fixture.scenario.answer_csr()))
    return fixture


def deleted() -> ReconcilerFixture:
    """Have a Machine that is being deleted."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.change_machine(deleting=True)
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


def without_approvals() -> ReconcilerFixture:
    """Be refused by a policy that disables approvals."""
    fixture = of_a_node(KNOWN)
    fixture.scenario.policy = replace(fixture.scenario.policy, approval=Approval.DISABLED)
    fixture.scenario.change_machine(registered_keys=())
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    return fixture


@pytest.mark.parametrize(
    "refuse",
    [
        offer_with_a_token,
        forged_quote,
        another_tpm,
        lambda: offer_with(COPIED),
        lambda: offer_with(""),
        another_node,
        no_node,
        serving,
        deleted,
        without_approvals,
    ],
    ids=[
        "offer with a bootstrap token",
        "forged quote",
        "another TPM",
        "certificate that the claim does not name",
        "certificate unknown to the API server",
        "another node",
        "not in the group of nodes",
        "serving certificate",
        "Machine being deleted",
        "approvals disabled",
    ],
)
def test_other_refusals_are_not_noted(refuse: Callable[[], ReconcilerFixture]) -> None:
    fixture = refuse()
    assert fixture.refusals == []
    [csr] = fixture.csrs.stored.values()
    assert csr.conditions or csr.annotations, "the request was refused"


def test_stranger_changes_no_machine_whose_node_has_attested() -> None:
    """Its claim decides the condition, also while that is False."""
    fixture = rejoining()
    machine = fixture.scenario.machine
    fixture.scenario.put_claim(machine=(machine.name, machine.uid), credential_ids=(KNOWN,))
    fixture.scenario.change_machine(registered_keys=())
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    assert fixture.machines == []
    fixture.scenario.put_claim(machine=(machine.name, "a former UID"), credential_ids=(KNOWN,))
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr(name="kubelet-tpm-c")))
    assert [condition.name for condition in fixture.machines] == [machine.name]


def test_client_certificate_ends_the_refusal_and_a_serving_certificate_does_not() -> None:
    fixture = of_a_node(KNOWN)
    scenario = fixture.scenario
    refusal = Refusal(
        reason="PcrPolicyMismatch", message="PCR 4", time=scenario.now, request="csr-1"
    )
    deadline = scenario.now + timedelta(hours=1)
    claim = claim_of(fixture).replace(last_refusal=refusal, renewal_deadline=deadline)
    scenario.store.put_node(claim)
    scenario.for_serving("192.0.2.11")
    serving = fixture.result(fixture.file(scenario.answer_csr()))
    assert serving.certificate is not None
    claim = claim_of(fixture)
    assert (claim.last_refusal, claim.renewal_deadline) == (refusal, deadline)

    scenario.kind, scenario.sans, scenario.request_der = CsrKind.CLIENT, (), b""
    client = fixture.result(fixture.file(replace(scenario.answer_csr(), uid=OFFER_UID)))
    assert client.certificate is not None
    claim = claim_of(fixture)
    assert claim.last_refusal is None
    assert claim.renewal_deadline is not None
    share = (claim.renewal_deadline - scenario.now) / (claim.not_after - scenario.now)
    assert share == pytest.approx(0.85, abs=1e-3), "the deadline is in whole seconds"
