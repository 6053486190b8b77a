"""A certificate that was recorded and never released leaves the claim of its node again."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from common.errors import ApiServerUnavailable
from signer.controller.queue.workqueue import DONE, RETRY, Result
from signer.kinds.csr import Condition, Csr, credential_id
from tests.builders.reconciler import ReconcilerFixture
from tests.builders.scenario import HOME, NODE

DENIED = Condition(type="Denied", reason="ByHand", message="no")
PRESENT = credential_id(b"present")


def cut_off() -> None:
    raise ApiServerUnavailable("away")


def require_done(result: Result) -> None:
    assert result == DONE


def recorded(fixture: ReconcilerFixture) -> tuple[str, ...]:
    """Return the certificates in the claim of the node."""
    node = fixture.scenario.store.find_node(HOME, NODE)
    assert node is not None
    return node.credential_ids


def issued_id(csr: Csr) -> str:
    """Return the ID of the certificate of a CSR."""
    assert csr.certificate is not None
    return credential_id(x509.load_pem_x509_certificate(csr.certificate).public_bytes(Encoding.DER))


def test_certificate_of_the_slower_signer_leaves_the_claim() -> None:
    """After a rolling restart, 25 of 200 claims had a certificate that no node ever got."""
    fixture = ReconcilerFixture()
    other = ReconcilerFixture(fixture.scenario, fixture.csrs, random=Random(8).randbytes)
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.csrs.interrupt = lambda: require_done(other.reconcile(csr))
    assert fixture.reconcile(csr) == DONE
    assert len(recorded(fixture)) == 2
    for each in (fixture, other):
        each.forget_unreleased(csr)
    assert recorded(fixture) == (issued_id(fixture.csrs.stored[csr.name]),)


@pytest.mark.parametrize(
    ("change", "stays"),
    [
        ({"certificate": b"another"}, False),
        ({"conditions": {"Denied": DENIED}}, False),
        ({}, True),
        ({"certificate": None, "uid": "another", "conditions": {"Denied": DENIED}}, True),
        (None, True),
    ],
    ids=["another certificate", "denied", "pending", "created again", "deleted"],
)
def test_certificate_leaves_the_claim_only_if_its_csr_is_decided_without_it(
    change: dict[str, Any] | None, *, stays: bool
) -> None:
    """A write whose answer was lost may have arrived."""
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim(credential_ids=(PRESENT,))
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.csrs.interrupt, fixture.csrs.interrupt_before = cut_off, 2
    assert fixture.reconcile(csr) == RETRY
    before = recorded(fixture)
    assert len(before) == 2
    if change is None:
        del fixture.csrs.stored[csr.name]
    else:
        fixture.csrs.put(replace(fixture.csrs.stored[csr.name], **change))
    fixture.forget_unreleased(csr)
    assert recorded(fixture) == (before if stays else (PRESENT,))


def test_released_certificate_stays_in_the_claim_though_the_answer_to_its_write_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim(credential_ids=(PRESENT,))
    csr = fixture.file(fixture.scenario.answer_csr())
    monkeypatch.setattr(fixture.withheld, "note_release", lambda _: None)
    fixture.result(csr)
    before = recorded(fixture)
    fixture.forget_unreleased(csr)
    assert recorded(fixture) == before == (PRESENT, issued_id(fixture.csrs.stored[csr.name]))


def test_the_only_certificate_of_a_claim_stays() -> None:
    """K4 passes with any certificate where none is recorded."""
    fixture = ReconcilerFixture()
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.csrs.interrupt, fixture.csrs.interrupt_before = cut_off, 2
    assert fixture.reconcile(csr) == RETRY
    [only] = recorded(fixture)
    fixture.csrs.put(replace(fixture.csrs.stored[csr.name], conditions={"Denied": DENIED}))
    fixture.forget_unreleased(csr)
    assert recorded(fixture) == (only,)


def test_claim_that_is_written_meanwhile_keeps_what_was_written() -> None:
    fixture = ReconcilerFixture()
    fixture.scenario.put_claim(credential_ids=(PRESENT,))
    csr = fixture.file(fixture.scenario.answer_csr())
    fixture.csrs.interrupt, fixture.csrs.interrupt_before = cut_off, 2
    assert fixture.reconcile(csr) == RETRY
    fixture.csrs.put(replace(fixture.csrs.stored[csr.name], conditions={"Denied": DENIED}))
    before, renewed = fixture.scenario.claim, credential_id(b"renewed")
    renewal = before.replace(credential_ids=(*before.credential_ids, renewed))

    def renew() -> None:
        fixture.scenario.store.put_node(renewal)

    fixture.claims.interrupt = renew
    fixture.claims.interrupt_before = len(fixture.claims.writes) + 1
    fixture.forget_unreleased(csr)
    assert recorded(fixture) == (PRESENT, renewed)
