"""Blocking tasks of all tenants share a few threads: no tenant can take them all."""

from concurrent.futures import Future, wait
from threading import Event, Thread, active_count

import pytest

from signer.fairness.task_pool import TaskPool

SECONDS = 30


def started(count: int, futures: list[Future[bool]]) -> None:
    """Wait until so many tasks run."""
    while sum(future.running() for future in futures) < count:
        wait(futures, timeout=0.01)


def test_result_and_exception_are_in_the_future() -> None:
    pool = TaskPool(1)
    assert pool.submit("a", lambda: 7).result(SECONDS) == 7
    with pytest.raises(ZeroDivisionError):
        pool.submit("a", lambda: 1 / 0).result(SECONDS)
    assert pool.submit("a", lambda: 8).result(SECONDS) == 8


def test_threads_are_started_when_they_are_needed() -> None:
    before = active_count()
    pool = TaskPool(8)
    for _ in range(20):
        pool.submit("a", lambda: None).result(SECONDS)
    assert active_count() - before <= 2


def test_tenant_whose_tasks_hang_leaves_threads_for_the_others() -> None:
    """Dead API servers of one tenant must not stop the maintenance of the others' clusters."""
    end = Event()
    pool = TaskPool(8)
    hanging = [pool.submit("hostile", lambda: end.wait(SECONDS)) for _ in range(100)]
    started(4, hanging)
    for _ in range(20):
        assert pool.submit("honest", lambda: True).result(SECONDS)
    assert sum(future.running() for future in hanging) == 4
    end.set()
    assert wait(hanging, SECONDS).not_done == set()


def test_tenants_take_turns() -> None:
    end = Event()
    pool = TaskPool(1)
    order: list[str] = []
    pool.submit("x", lambda: end.wait(SECONDS))
    flood = [pool.submit("flood", lambda: order.append("flood")) for _ in range(5)]
    honest = pool.submit("honest", lambda: order.append("honest"))
    end.set()
    wait([honest, *flood], SECONDS)
    assert order.index("honest") <= 1
    assert len(order) == 6


def test_cancelled_task_is_not_called() -> None:
    end = Event()
    pool = TaskPool(1)
    called = Event()
    first = pool.submit("a", lambda: end.wait(SECONDS))
    assert pool.submit("a", called.set).cancel()
    end.set()
    first.result(SECONDS)
    pool.submit("a", lambda: None).result(SECONDS)
    assert not called.is_set()


def test_pool_without_threads_raises_and_recovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have no threads left for a while."""

    def fails(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = TaskPool(2)
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fails)
        with pytest.raises(RuntimeError):
            pool.submit("a", lambda: 1)
    assert pool.submit("a", lambda: 2).result(SECONDS) == 2
