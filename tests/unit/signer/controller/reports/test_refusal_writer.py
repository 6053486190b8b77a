"""Refusals in claims: written once for each reason, bounded, and never into a later claim."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.reports import refusal_writer
from signer.controller.reports.refusal_writer import RefusalWriter
from signer.errors import AttestedNodeUnreadable, ClaimConflict
from signer.model import (
    AttestedNodeObject,
    ClaimStore,
    ClusterKey,
    MeasuredValues,
    Refusal,
    credential_id,
)
from tests.builders.attested_nodes import attested_node

CLUSTER = ClusterKey(namespace="team-a", name="blue")
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NODE = attested_node(
    CLUSTER, key="ab" * 32, last_attested=NOW, credential_ids=(credential_id(b"first"),)
)
DENIED = Refusal(reason="PcrPolicyMismatch", message="PCR 4", time=NOW, request="csr-1")
WAITS = replace(DENIED, reason="PolicyMissing", message="no policy")


@dataclass(slots=True)
class Claims:
    """A writer of refusals, and the claims that it writes."""

    nodes: dict[str, AttestedNodeObject] = field(default_factory=lambda: {"node-1": NODE})
    failures: list[Exception] = field(default_factory=list)
    """Raised by the next reads, one each."""
    conflicts: int = 0
    requests: int = 0
    seconds: float = 0.0
    writer: RefusalWriter = field(init=False)

    def __post_init__(self) -> None:
        self.writer = RefusalWriter(cast("ClaimStore", self), monotonic=lambda: self.seconds)

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        assert cluster == CLUSTER
        self.requests += 1
        if self.failures:
            raise self.failures.pop()
        return self.nodes.get(node_name)

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        self.requests += 1
        assert self.nodes[current.node_name] == current
        if self.conflicts:
            self.conflicts -= 1
            raise ClaimConflict("others write")
        self.nodes[current.node_name] = new
        return new

    def refuse(self, *refusals: Refusal, node: AttestedNodeObject | None = None) -> Refusal | None:
        """Note refusals for the present claim, flush, and return what the claim says."""
        for refusal in refusals:
            self.writer.note(node or self.nodes["node-1"], refusal)
        self.writer.flush()
        return self.nodes["node-1"].last_refusal


def test_refusal_is_written_into_the_claim_with_an_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claims = Claims()
    assert claims.refuse(DENIED) == DENIED
    assert replace(claims.nodes["node-1"], last_refusal=None) == NODE
    [record] = caplog.records
    fields = vars(record)["fields"]
    assert (fields["alarm"], fields["reason"]) == (True, "PcrPolicyMismatch")
    assert (fields["node"], fields["machine"]) == ("node-1", "machine-1")


def test_other_values_of_the_node_are_another_refusal() -> None:
    claims = Claims()
    first = replace(DENIED, measured=MeasuredValues(pcrs={"sha256": {"4": "01"}}))
    second = replace(DENIED, measured=MeasuredValues(pcrs={"sha256": {"4": "02"}}))
    assert claims.refuse(first) == first
    claims.seconds += 11
    assert claims.refuse(replace(first, request="csr-2")) == first
    assert claims.refuse(second) == second


def test_node_that_retries_every_second_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    claims = Claims()
    for second in range(3600):
        claims.seconds = second
        claims.refuse(replace(DENIED, time=NOW + timedelta(seconds=second)))
    assert claims.requests == 2
    assert len(caplog.records) == 1
    later = replace(DENIED, time=NOW + timedelta(hours=1))
    claims.seconds = 3600.0
    assert claims.refuse(later) == later


def test_refusals_for_changing_reasons_are_written_every_ten_seconds() -> None:
    claims = Claims()
    for second in range(20):
        claims.seconds = second
        claims.refuse(WAITS if second % 2 else DENIED)
    assert claims.requests == 4
    claims.seconds = 20.0
    claims.refuse()
    assert claims.nodes["node-1"].last_refusal == WAITS, "the last one in the end"


def test_refusal_of_an_earlier_certificate_is_dropped() -> None:
    """The node has got another certificate since, so nothing is wrong with it."""
    claims = Claims()
    earlier = replace(NODE, credential_ids=(credential_id(b"an earlier one"),))
    assert claims.refuse(DENIED, node=earlier) is None
    claims.seconds = 60.0
    assert claims.refuse() is None
    assert claims.requests == 1


def test_deleted_claim_gets_no_refusal() -> None:
    claims = Claims(nodes={})
    claims.writer.note(NODE, DENIED)
    claims.writer.flush()
    claims.writer.flush()
    assert claims.requests == 1


def test_conflict_is_tried_again_in_the_next_round() -> None:
    claims = Claims(conflicts=1)
    assert claims.refuse(DENIED) is None
    assert claims.refuse() == DENIED


@pytest.mark.parametrize(
    ("failure", "written"),
    [
        (ApiServerUnavailable("away"), DENIED),
        (AttestedNodeUnreadable("it cannot be read"), None),
    ],
    ids=["API server away", "claim of another program"],
)
def test_failure_is_tried_again_after_a_pause(failure: Exception, written: Refusal | None) -> None:
    claims = Claims(failures=[failure])
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
        claims.writer.note(replace(NODE, node_name=f"node-{number}"), DENIED)
    assert [size() for size in sizes] == [5, 5]
    claims.writer.flush()
    assert [size() for size in sizes] == [0, 0]
