"""Claims that went back are noticed by the marker, and nothing else is taken for that."""

from datetime import UTC, datetime, timedelta

import pytest

from signer.claims.marker import Marker, Newest, next_marker
from signer.seams import WentBack

NOW = datetime(2026, 11, 22, tzinfo=UTC)
DAY = timedelta(days=1)


def newest(attested: int, ends: int = 7) -> Newest:
    """Return a state of claims; both are in days from now."""
    return Newest(last_attested=NOW + attested * DAY, not_after=NOW + ends * DAY)


def loss(at: int, until: int = 7) -> WentBack:
    return WentBack(at=NOW + at * DAY, until=NOW + until * DAY)


CASES: dict[str, tuple[Marker, Newest | None, Marker]] = {
    "the first claim": (Marker(), newest(-1), Marker(newest=newest(-1))),
    "a Cluster without claims": (Marker(), None, Marker()),
    "a newer claim": (Marker(newest=newest(-2)), newest(-1), Marker(newest=newest(-1))),
    "the same claims": (Marker(newest=newest(-1)), newest(-1), Marker(newest=newest(-1))),
    "older claims": (
        Marker(newest=newest(-1)),
        newest(-3, 4),
        Marker(newest=newest(-3, 4), went_back=loss(-1)),
    ),
    "no claim at all": (
        Marker(newest=newest(-1)),
        None,
        Marker(newest=newest(-1), went_back=loss(-1)),
    ),
    "older claims, after all certificates ended": (
        Marker(newest=newest(-9, 0)),
        newest(-10),
        Marker(newest=newest(-10)),
    ),
    "a renewal after the loss": (
        Marker(newest=newest(-3, 4), went_back=loss(-1)),
        newest(0),
        Marker(newest=newest(0), went_back=loss(-1)),
    ),
    "a second loss, of an older state": (
        Marker(newest=newest(-3, 9), went_back=loss(-1)),
        newest(-5),
        Marker(newest=newest(-5), went_back=loss(-1, 9)),
    ),
    "a loss that is over": (
        Marker(newest=newest(-1), went_back=loss(-8, 0)),
        newest(-1),
        Marker(newest=newest(-1)),
    ),
}


@pytest.mark.parametrize(("marker", "present", "following"), CASES.values(), ids=CASES)
def test_marker_follows_the_claims(
    marker: Marker, present: Newest | None, following: Marker
) -> None:
    assert next_marker(marker, present, NOW) == following
