"""The clock of this machine, compared with the header `Date` of the management API server."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from signer.controller.clock_skew import ClockSkew

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
ENOUGH = 4


def observe(skew: ClockSkew, ahead: float, *, times: int = ENOUGH, took: float = 0.0) -> None:
    """Let an API server answer whose clock is right; this one is ahead by some seconds."""
    received = NOW + timedelta(seconds=ahead)
    for _ in range(times):
        date = format_datetime(NOW, usegmt=True).encode()
        skew.observe(date, received - timedelta(seconds=took), received)


@pytest.mark.parametrize("ahead", [0.0, 0.9, -0.9, 60.0, -59.0])
def test_clock_that_differs_by_a_minute_raises_no_alarm(
    ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    skew = ClockSkew()
    observe(skew, ahead)
    assert skew.is_trusted
    assert caplog.records == []


@pytest.mark.parametrize(
    ("ahead", "trusted"), [(62, True), (-61, True), (240, True), (242, False), (-242, False)]
)
def test_clock_that_differs_by_more_raises_one_alarm(
    ahead: float, *, trusted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    skew = ClockSkew()
    observe(skew, ahead)
    assert skew.seconds == pytest.approx(ahead, abs=1.0)
    assert skew.is_trusted == trusted
    [record] = caplog.records
    assert record.getMessage() == "clock differs from the management API server's"
    assert vars(record)["fields"]["alarm"]


def test_end_of_the_skew_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    skew = ClockSkew()
    observe(skew, 1200)
    observe(skew, 0)
    assert skew.is_trusted
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_slow_answer_is_no_skew() -> None:
    """The API server wrote its time at any moment of the request."""
    skew = ClockSkew()
    observe(skew, 300, took=301)
    assert skew.seconds == 0.0


def test_one_of_several_api_servers_with_a_wrong_clock_stops_no_replica() -> None:
    skew = ClockSkew()
    for _ in range(10):
        observe(skew, 1200, times=ENOUGH - 1)
        observe(skew, 0, times=1)
        assert skew.is_trusted


@pytest.mark.parametrize(
    "date", [b"", b"yesterday", b"\xff", b"Mon, 99 Nov 2026 12:00:00 GMT", b"1" * 5000]
)
def test_answer_without_a_time_says_nothing(date: bytes) -> None:
    skew = ClockSkew()
    skew.observe(date, NOW, NOW)
    assert skew.seconds == 0.0
    assert not skew.is_trusted
