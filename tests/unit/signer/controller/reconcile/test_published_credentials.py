"""What the reconciler writes into the credential list before it releases a certificate."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from common.errors import ApiServerUnavailable
from signer.claims.credential_entry import entry_of
from signer.controller.queue.workqueue import RETRY
from signer.controller.reconcile.csr_state import CsrState
from signer.model import credential_id
from signer.policy.policy import UnknownCredential
from tests.builders.attested_nodes import entry_text
from tests.builders.reconciler import ReconcilerFixture
from tests.builders.renewing_node import KNOWN, alarms, claim_of, issued, of_a_node
from tests.builders.scenario import NODE

SINCE: Final = credential_id(b"issued since the backup")


@pytest.mark.parametrize("publish", [True, False])
def test_certificate_is_published_before_its_release_if_the_policy_says_so(
    *, publish: bool
) -> None:
    """Otherwise the node could not write with it."""
    fixture = of_a_node(KNOWN, publish=publish)
    written: list[list[str]] = []
    fixture.lists.meanwhile = lambda: written.append(list(fixture.csrs.writes))
    assert fixture.result(fixture.file(fixture.scenario.answer_csr())).certificate is not None
    assert written == ([[]] if publish else [])
    assert fixture.lists.published == ([{NODE: entry_of(claim_of(fixture))}] if publish else [])


def test_worker_holds_no_entry_of_another_node_while_it_waits() -> None:
    """A hostile API server may fill its list: each worker could keep 15 MiB of it."""
    fixture = of_a_node(KNOWN, publish=True)
    fixture.lists.texts = {NODE: "7", "other": "8"}
    csr = fixture.file(fixture.scenario.answer_csr())
    current = CsrState(fixture.dependencies(), fixture.cluster, csr)
    current.load_policy()
    listed = current.read_credential_list(NODE)
    assert listed is not None
    assert listed.texts == {NODE: "7"}


def test_late_publication_does_not_bring_back_the_certificates_of_a_banned_key() -> None:
    """The operator banned the key, and maintenance ended its certificates, before this write."""
    fixture = of_a_node(KNOWN, publish=True)
    (key,) = fixture.scenario.store.keys.values()
    ban = partial(fixture.scenario.put_key, key.name, held_by=key.held_by, banned=True)
    fixture.lists.meanwhile = ban
    fixture.result(fixture.file(fixture.scenario.answer_csr()))
    assert fixture.lists.published[-1] == {NODE: replace(entry_of(claim_of(fixture)), ids=())}


def test_late_publication_does_not_end_the_certificate_of_another_replica() -> None:
    """Both replicas issued a certificate for one answer, and the node got that of the other one."""
    fixture = of_a_node(KNOWN, publish=True)
    other = credential_id(b"other")

    def issue_another() -> None:
        node = claim_of(fixture)
        if other not in node.credential_ids:
            later = node.last_attested + timedelta(seconds=1)
            both = (*node.credential_ids, other)
            fixture.scenario.store.put_node(replace(node, credential_ids=both, last_attested=later))

    fixture.lists.meanwhile = issue_another
    fixture.result(fixture.file(fixture.scenario.answer_csr()))
    last = fixture.lists.published[-1][NODE]
    assert last is not None
    assert last.names(other)


def test_certificate_is_not_released_while_its_publication_is_unclear() -> None:
    """Without the claims, nothing says whether the entry that was written is the present one."""
    fixture = of_a_node(KNOWN, publish=True)

    def lose_claims() -> None:
        fixture.claims.unavailable = True

    fixture.lists.meanwhile = lose_claims
    csr = fixture.file(fixture.scenario.answer_csr())
    assert fixture.reconcile(csr) == RETRY
    assert fixture.csrs.stored[csr.name].certificate is None


def test_serving_certificate_is_not_published() -> None:
    fixture = of_a_node(KNOWN, publish=True)
    fixture.scenario.for_serving(NODE)
    assert fixture.result(fixture.file(fixture.scenario.answer_csr())).certificate is not None
    assert fixture.lists.published == []


# The management cluster was restored from a backup


def restored_node(
    presented: str, reaction: UnknownCredential = UnknownCredential.WARN
) -> ReconcilerFixture:
    """Return a node whose claim is from a backup, which is older than its certificate `SINCE`."""
    fixture = of_a_node(presented, reaction, publish=True)
    later = entry_of(claim_of(fixture)).order + 1
    fixture.lists.texts = {NODE: entry_text(SINCE, order=later)}
    return fixture


@pytest.mark.parametrize("reaction", UnknownCredential)
def test_certificate_that_only_the_list_knows_is_known(
    caplog: pytest.LogCaptureFixture, reaction: UnknownCredential
) -> None:
    """The node was denied, or lost its right to write until its kubelet had the next one."""
    fixture = restored_node(SINCE, reaction)
    fixture.reconcile(fixture.file(fixture.scenario.offer_csr()))
    after = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    assert claim_of(fixture).credential_ids == (SINCE, issued(after))
    assert fixture.lists.published == [{NODE: entry_of(claim_of(fixture))}]
    assert alarms(caplog) == []


def test_certificate_that_had_ended_before_the_restore_raises_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The backup names it, and the list does not."""
    fixture = restored_node(KNOWN)
    after = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    assert claim_of(fixture).credential_ids == (issued(after),)
    assert [alarm["outcome"] for alarm in alarms(caplog)] == ["alarm"]


# The list has no space


def test_node_without_space_in_the_list_gets_its_certificate_and_no_entry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its renewals stopped, and only the log of the signer said why."""
    fixture = of_a_node(KNOWN, publish=True)
    fixture.lists.texts = {NODE: entry_text()}
    fixture.lists.size = 3 << 19
    after = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    assert issued(after) in claim_of(fixture).credential_ids
    assert fixture.lists.published == [{NODE: None}]
    assert [alarm["outcome"] for alarm in alarms(caplog, "CredentialListFull")] == ["alarm"]
    assert [m.reason for m in fixture.machines] == ["CredentialListFull", "Attested"]


# An attempt fails after the claims are written


def fail(fixture: ReconcilerFixture, attempts: int) -> None:
    """Let a number of publications fail."""
    left = [None] * attempts

    def answer() -> None:
        if left:
            left.pop()
            raise ApiServerUnavailable("it does not answer")

    fixture.lists.meanwhile = answer


def test_each_attempt_publishes_the_same_certificate() -> None:
    """Each attempt recorded one more certificate, so that the entry of the node grew."""
    fixture = of_a_node(KNOWN, publish=True)
    fail(fixture, 3)
    after = fixture.result(fixture.file(fixture.scenario.answer_csr()))
    assert claim_of(fixture).credential_ids == (KNOWN, issued(after))
