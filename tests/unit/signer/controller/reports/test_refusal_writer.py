"""Refusals in claims: written once for each reason, bounded, and never into a later claim."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from signer.controller.reports import refusal_writer
from signer.controller.reports.refusal_writer import RefusalWriter
from signer.kinds.attested_node import AttestedNodeObject, MeasuredValues, Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import credential_id
from tests.builders.attested_nodes import attested_node
from tests.builders.claims_cluster import ClaimsCluster
from tests.fakes.cluster import Outcome

CLUSTER = ClusterKey(namespace="team-a", name="blue")
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NODE = attested_node(
    CLUSTER, key="ab" * 32, last_attested=NOW, credential_ids=(credential_id(b"first"),)
)
DENIED = Refusal(reason="PcrPolicyMismatch", message="PCR 4", time=NOW, request="csr-1")
WAITS = DENIED.replace(reason="PolicyMissing", message="no policy")


@dataclass(slots=True)
class Claims:
    """A writer of refusals, and the claim that it writes."""

    cluster: ClaimsCluster = field(default_factory=ClaimsCluster)
    node: AttestedNodeObject = field(init=False)
    seconds: float = 0.0
    writer: RefusalWriter = field(init=False)

    def __post_init__(self) -> None:
        self.node = self.cluster.put_node(NODE)
        self.writer = RefusalWriter(self.cluster.store, monotonic=lambda: self.seconds)

    @property
    def requests(self) -> int:
        return len(self.cluster.api.requests)

    def refuse(self, *refusals: Refusal, node: AttestedNodeObject | None = None) -> Refusal | None:
        """Note refusals for the present claim, flush, and return what the claim says."""
        for refusal in refusals:
            self.writer.note(node or self.node, refusal)
        self.writer.flush()
        requests = list(self.cluster.api.requests)
        present = self.cluster.store.attested_node(CLUSTER, "node-1")
        assert present is not None
        self.node = present
        self.cluster.api.requests[:] = requests
        return present.last_refusal


def test_refusal_is_written_into_the_claim_with_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claims = Claims()
    assert claims.refuse(DENIED) == DENIED
    changed = {"last_refusal": None, "resource_version": NODE.resource_version}
    assert claims.node.replace(**changed) == NODE
    [record] = caplog.records
    fields = vars(record)["fields"]
    assert (fields["alarm"], fields["reason"]) == (True, "PcrPolicyMismatch")
    assert (fields["node"], fields["machine"]) == ("node-1", "machine-1")


def test_other_values_of_the_node_are_another_refusal() -> None:
    claims = Claims()
    first = DENIED.replace(measured=MeasuredValues(pcrs={"sha256": {"4": "01" * 32}}))
    second = DENIED.replace(measured=MeasuredValues(pcrs={"sha256": {"4": "02" * 32}}))
    assert claims.refuse(first) == first
    claims.seconds += 11
    assert claims.refuse(first.replace(request="csr-2")) == first
    assert claims.refuse(second) == second


def test_node_that_retries_every_second_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    claims = Claims()
    for second in range(3600):
        claims.seconds = second
        claims.refuse(DENIED.replace(time=NOW + timedelta(seconds=second)))
    assert claims.requests == 2
    assert len(caplog.records) == 1
    later = DENIED.replace(time=NOW + timedelta(hours=1))
    claims.seconds = 3600.0
    assert claims.refuse(later) == later


def test_refusals_for_changing_reasons_are_written_every_ten_seconds() -> None:
    claims = Claims()
    for second in range(20):
        claims.seconds = second
        claims.refuse(WAITS if second % 2 else DENIED)
    assert claims.requests == 4
    claims.seconds = 20.0
    assert claims.refuse() == WAITS, "the last one in the end"


def test_refusal_of_an_earlier_certificate_is_dropped() -> None:
    """The node has got another certificate since, so nothing is wrong with it."""
    claims = Claims()
    earlier = NODE.replace(credential_ids=(credential_id(b"an earlier one"),))
    assert claims.refuse(DENIED, node=earlier) is None
    claims.seconds = 60.0
    assert claims.refuse() is None
    assert claims.requests == 1


def test_deleted_claim_gets_no_refusal() -> None:
    claims = Claims()
    claims.cluster.api.objects.clear()
    claims.writer.note(NODE, DENIED)
    claims.writer.flush()
    claims.writer.flush()
    assert claims.requests == 1


def test_conflict_is_tried_again_in_the_next_round() -> None:
    claims = Claims()
    claims.cluster.api.intercept(409, "PUT")
    assert claims.refuse(DENIED) is None
    assert claims.refuse() == DENIED


@pytest.mark.parametrize(
    ("answer", "written"),
    [(503, DENIED), ((200, {"spec": {}}), None)],
    ids=["API server away", "claim of another program"],
)
def test_failure_is_tried_again_after_a_pause(answer: Outcome, written: Refusal | None) -> None:
    claims = Claims()
    claims.cluster.api.intercept(answer, "GET")
    assert claims.refuse(DENIED) is None
    assert claims.refuse() is None
    claims.seconds = 31.0
    assert claims.refuse() == written


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_writer, "_MAX_DUE", 5)
    claims = Claims()
    sizes: list[Callable[[], int]] = [
        lambda: len(claims.writer._due),
        claims.writer._counts.total,
    ]
    for number in range(10):
        claims.writer.note(NODE.replace(node_name=f"node-{number}"), DENIED)
    assert [size() for size in sizes] == [5, 5]
    claims.writer.flush()
    assert [size() for size in sizes] == [0, 0]
