"""States of a circuit breaker: closed, open, half-open."""

from signer.fairness.circuit_breaker import BreakerState, CircuitBreaker


def opened(now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    assert [breaker.record(failed=True, now=now) for _ in range(3)] == [False, False, True]
    return breaker


def test_three_failed_calls_in_a_row_open_the_breaker() -> None:
    breaker = opened()
    assert breaker.state(0.0) is BreakerState.OPEN
    assert breaker.max_workers(4, 0.0) == 0


def test_a_good_call_between_failed_ones_keeps_the_breaker_closed() -> None:
    breaker = CircuitBreaker()
    for failed in (True, True, False, True, True):
        assert not breaker.record(failed=failed, now=0.0)
    assert breaker.state(0.0) is BreakerState.CLOSED
    assert breaker.max_workers(4, 0.0) == 4


def test_a_slow_server_gets_fewer_workers_without_a_cliff() -> None:
    """At 2.5 s a request ten of ten nodes joined, at 3.3 s five: each call of 3 s was a failure."""
    workers = []
    for seconds in (2.5, 3.3, 6.0, 29.0, 2900.0):
        breaker = CircuitBreaker()
        for _ in range(20):
            assert not breaker.record(failed=False, now=0.0, seconds=seconds)
        assert breaker.state(0.0) is BreakerState.CLOSED
        workers.append(breaker.max_workers(16, 0.0))
    assert workers == [16, 14, 8, 1, 1]


def test_a_server_that_is_fast_again_gets_its_workers_back_step_by_step() -> None:
    """A fast call among many slow ones would give back all workers."""
    breaker, workers = CircuitBreaker(), []
    breaker.record(failed=False, now=0.0, seconds=24.0)
    while not breaker.is_pristine:
        workers.append(breaker.max_workers(16, 0.0))
        breaker.record(failed=False, now=0.0, seconds=0.1)
    assert workers == [2, 4, 8]


def test_a_half_open_breaker_allows_one_worker() -> None:
    breaker = opened()
    assert breaker.state(2.0) is BreakerState.HALF_OPEN
    assert breaker.max_workers(4, 2.0) == 1


def test_a_good_probe_closes_the_breaker() -> None:
    breaker = opened()
    assert not breaker.record(failed=False, now=2.0)
    assert breaker.state(2.0) is BreakerState.CLOSED
    assert breaker.is_pristine


def test_each_failed_probe_doubles_the_pause_up_to_a_minute() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(8):
        pauses.append(breaker.retry_at - now)
        now = breaker.retry_at
        assert breaker.record(failed=True, now=now)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_calls_that_began_before_the_breaker_opened_do_not_lengthen_the_pause() -> None:
    breaker = opened()
    assert not breaker.record(failed=True, now=1.0)
    assert breaker.retry_at == 2.0
