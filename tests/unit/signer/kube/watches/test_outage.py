"""Which failures of a watch get a line in the log."""

from signer.kube.watches.outage import Outage


def test_failures_that_repeat_are_logged_less_and_less_often() -> None:
    """A workload cluster that stays unreachable had a line for each watch every ten seconds."""
    outage = Outage()
    logged = [n for n in range(1, 100) if outage.add_failure("away", 10.0 * n)]
    assert logged == [1, 2, 4, 8, 16, 32, 64]


def test_another_message_is_logged_at_most_twice_a_minute() -> None:
    """A hostile API server may choose another status for each failure."""
    outage = Outage()
    logged = [now for now in range(600) if outage.add_failure(f"status {now % 7}", float(now))]
    powers_of_two = 10
    assert 600 // 31 <= len(logged) <= 600 // 30 + powers_of_two


def test_another_message_is_logged_after_many_failures() -> None:
    outage = Outage()
    for now in range(100):
        outage.add_failure("away", float(now))
    assert outage.add_failure("forbidden", 100.0)
    assert not outage.add_failure("forbidden", 101.0)


def test_end_is_reported_once_after_half_a_minute_without_a_failure() -> None:
    outage = Outage()
    assert outage.end(100.0) == 0
    for now in (100.0, 101.0, 102.0):
        outage.add_failure("away", now)
    assert [outage.end(now) for now in (102.0, 132.0, 133.0, 134.0)] == [0, 0, 3, 0]
    assert outage.add_failure("away", 135.0)
