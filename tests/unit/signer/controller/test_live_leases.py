"""Which Leases count, however slow the API server is."""

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from signer.controller.live_leases import RENEW_SECONDS, LiveLeases
from signer.kube.leases import Lease

MAX_SECONDS = 5
"""Of one request."""
NUMBER = 12
REQUESTS = st.lists(
    st.tuples(st.integers(0, MAX_SECONDS), st.sampled_from((0.0, 0.5, 1.0))),
    min_size=NUMBER,
    max_size=NUMBER,
)
"""How long each request takes, and at which part of this time the API server performs it."""


def times(requests: list[tuple[int, float]]) -> list[tuple[float, float]]:
    """Return when each request starts, and when the API server performs it."""
    pauses = (max(RENEW_SECONDS, seconds) for seconds, _ in requests)
    starts = accumulate(pauses, initial=0.0)
    return [
        (start, start + seconds * part)
        for start, (seconds, part) in zip(starts, requests, strict=False)
    ]


def lease(renewals: int) -> Lease:
    """Return a replica's Lease after some renewals."""
    return Lease(
        name="a",
        uid="u",
        resource_version="1",
        labels={},
        holder="a",
        renewed=str(renewals),
    )


@example(
    renewals=[(5, 0.0)] * 3 + [(5, 1.0)] * 9,
    reads=[(5, 0.0), (5, 1.0), (4, 0.0), *[(5, 0.0)] * 9],
)
@given(renewals=REQUESTS, reads=REQUESTS)
def test_lease_of_a_replica_that_runs_does_not_lapse_while_requests_take_five_seconds(
    renewals: list[tuple[int, float]], reads: list[tuple[int, float]]
) -> None:
    """Renewals and lists waited for each other, so a Lease lapsed and all replicas served all."""
    written, live = [performed for _, performed in times(renewals)], LiveLeases()
    for start, performed in times(reads):
        if performed < written[0] or performed > written[-1]:
            continue
        live.update([lease(sum(at <= performed for at in written))], start)
        assert live.lapsed(start) == []


@pytest.mark.parametrize(
    ("reads", "is_unproved"),
    [((0.0, 5.0), True), ((0.0, 2.0, 4.9), True), ((0.0, 2.0, 5.0), False)],
    ids=["two reads", "less than five seconds", "three reads and five seconds"],
)
def test_lease_that_is_not_renewed_is_unproved_for_three_reads_and_five_seconds(
    reads: tuple[float, ...], *, is_unproved: bool
) -> None:
    """The Clusters of a replica that was killed would wait longer, or those of a slow one less."""
    live = LiveLeases()
    for now in reads:
        live.update([lease(1)], now)
    assert live.unproved(reads[-1]) == ([lease(1)] if is_unproved else [])


def test_lease_that_was_not_renewed_for_ten_minutes_is_abandoned() -> None:
    live = LiveLeases()
    live.update([lease(1)], 0.0)
    assert live.abandoned(599.9) == []
    assert live.abandoned(600.0) == [lease(1)]
