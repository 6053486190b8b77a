"""Which Leases count, however slow the API server is."""

from itertools import accumulate

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
        number = sum(at <= performed for at in written)
        lease = Lease(
            name="a",
            uid="u",
            resource_version="1",
            labels={},
            annotations={},
            holder="a",
            renewed=str(number),
        )
        live.update([lease], start)
        assert live.lapsed(start) == []
