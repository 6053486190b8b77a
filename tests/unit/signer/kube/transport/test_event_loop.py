"""Watches are tasks of one thread; what blocks is called on the threads of a pool."""

import asyncio
import time
from threading import Event, Thread, current_thread

import pytest

from signer.fairness.task_pool import TaskPool
from signer.kube.transport.event_loop import EventLoop

SECONDS = 30


def stop(loop: EventLoop) -> None:
    """Stop the thread, which runs until the process ends otherwise."""
    inner = loop._loop
    assert inner is not None
    inner.call_soon_threadsafe(inner.stop)
    thread = loop._thread
    assert thread is not None
    thread.join(SECONDS)
    inner.close()


def test_tasks_share_a_thread() -> None:
    loop = EventLoop("test", TaskPool(1))
    threads: list[Thread] = []

    async def note() -> None:
        threads.append(current_thread())

    for _ in range(3):
        loop.start(note).result(SECONDS)
    assert len(set(threads)) == 1
    assert threads[0].name == "test"
    stop(loop)


def test_loop_is_healthy_while_its_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe that asked at this moment logged an alarm."""
    loop, start, answers = EventLoop("test", TaskPool(1)), Thread.start, list[bool]()

    def start_slowly(thread: Thread) -> None:
        answers.append(loop.is_healthy())
        start(thread)
        answers.append(loop.is_healthy())

    async def nothing() -> None:
        pass

    monkeypatch.setattr(Thread, "start", start_slowly)
    loop.start(nothing).result(SECONDS)
    assert answers == [True, True]
    assert loop.is_healthy()
    stop(loop)


def test_cancelled_task_ends_while_it_waits() -> None:
    """The thread of a closed cluster's watch ended minutes later."""
    loop = EventLoop("test", TaskPool(1))
    begun, ended = Event(), Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    task = loop.start(wait)
    assert begun.wait(SECONDS)
    task.cancel()
    assert ended.wait(SECONDS)
    stop(loop)


def test_task_that_keeps_the_thread_makes_the_loop_unhealthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watches behind it stand still, and the caches with them."""
    loop, seconds = EventLoop("test", TaskPool(1)), 0.0
    begun, unblock = Event(), Event()

    async def block() -> None:
        begun.set()
        unblock.wait()

    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    assert loop.is_healthy()
    loop.start(block)
    assert begun.wait(SECONDS)
    seconds = 120.0
    assert loop.is_healthy()
    seconds = 121.0
    assert not loop.is_healthy()
    unblock.set()
    stop(loop)
    monkeypatch.undo()
    assert not loop.is_healthy()


def test_function_that_blocks_does_not_hold_the_other_tasks() -> None:
    loop = EventLoop("test", TaskPool(1))
    unblock = Event()

    async def block() -> None:
        assert await loop.call("a", lambda: unblock.wait(SECONDS))

    async def unblock_it() -> None:
        unblock.set()

    blocked = loop.start(block)
    loop.start(unblock_it).result(SECONDS)
    blocked.result(SECONDS)
    stop(loop)


def test_loop_whose_thread_did_not_start_is_started_by_the_next_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process may have no threads left for a while."""

    def fails(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def nothing() -> None:
        pass

    loop = EventLoop("test", TaskPool(1))
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", fails)
        with pytest.raises(RuntimeError):
            loop.start(nothing)
    loop.start(nothing).result(SECONDS)
    stop(loop)
