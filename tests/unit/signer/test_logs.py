"""The log is written on a thread of its own: a reader that stops delays no other thread."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event

import pytest

from signer import logs
from signer.logs import AUDIT, LogWriter

_PIPE_BYTES = 64 << 10
"""What the kernel keeps of a pipe that has no reader (pipe(7))."""


@dataclass(slots=True)
class Pipe:
    """A pipe that is read only when the test reads it, and a writer to it."""

    max_bytes: int
    seconds: float = 0.0
    output: int = field(init=False)
    descriptor: int = field(init=False)
    writer: LogWriter = field(init=False)
    logger: logging.Logger = field(init=False)

    def __post_init__(self) -> None:
        self.output, self.descriptor = os.pipe()
        self.writer = LogWriter(
            self.descriptor, max_bytes=self.max_bytes, monotonic=lambda: self.seconds
        )
        self.writer.start()
        self.logger = logging.Logger("test")  # noqa: LOG001 # not one of the process
        self.logger.addHandler(self.writer)

    def log(self, text: str, *, audit: bool = False) -> None:
        self.logger.info("%s", text, extra={AUDIT: True} if audit else {})

    def read(self, count: int) -> list[str]:
        """Read lines, and return their events."""
        with os.fdopen(os.dup(self.output), encoding="utf-8") as lines:
            return [json.loads(lines.readline())["event"] for _ in range(count)]


@pytest.fixture
def make_pipe() -> Iterator[Callable[[int], Pipe]]:
    """Make pipes, and let their writers write all lines at the end."""
    made: list[Pipe] = []

    def make(max_bytes: int) -> Pipe:
        made.append(Pipe(max_bytes))
        return made[-1]

    yield make
    for pipe in made:
        os.set_blocking(pipe.output, False)  # a positional parameter
        while pipe.writer._lines:
            with suppress(BlockingIOError):
                os.read(pipe.output, _PIPE_BYTES)


@pytest.fixture
def pipe(make_pipe: Callable[[int], Pipe]) -> Pipe:
    return make_pipe(1 << 20)


def test_callers_do_not_wait_for_a_blocked_pipe_and_no_line_is_lost(pipe: Pipe) -> None:
    """All workers waited in `write`. The replica kept its Lease and served nothing."""
    texts = [f"{n} {'x' * 1000}" for n in range(2 * _PIPE_BYTES // 1000)]
    for text in texts:
        pipe.log(text)
    assert pipe.read(len(texts)) == texts


def test_line_that_waits_for_half_a_minute_makes_the_log_unhealthy(pipe: Pipe) -> None:
    big = "x" * 2 * _PIPE_BYTES
    pipe.log(big)
    pipe.seconds = 29
    assert pipe.writer.is_healthy()
    pipe.seconds = 30
    assert not pipe.writer.is_healthy()
    assert pipe.read(1) == [big]
    pipe.writer.flush()
    assert pipe.writer.is_healthy()


def test_flood_of_lines_displaces_no_line_of_the_audit_log(
    make_pipe: Callable[[int], Pipe],
) -> None:
    pipe = make_pipe(4 * _PIPE_BYTES)
    big = "x" * _PIPE_BYTES
    for _ in range(5):
        pipe.log(big)
    pipe.log(big, audit=True)
    assert pipe.writer.lost() == {"other": 4, "audit": 0}


def test_lines_that_are_lost_are_counted_and_become_an_alarm(
    make_pipe: Callable[[int], Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = make_pipe(2 * _PIPE_BYTES)
    monkeypatch.setattr(logs, "_logger", pipe.logger)
    big = "x" * _PIPE_BYTES
    for _ in range(4):
        pipe.log(big, audit=True)
    assert pipe.writer.lost() == {"other": 0, "audit": 3}
    with os.fdopen(os.dup(pipe.output), encoding="utf-8") as lines:
        assert json.loads(lines.readline())["event"] == big
        report = json.loads(lines.readline())
        assert report["event"] == "log lines lost"
        assert (report["audit"], report["other"], report["alarm"]) == (3, 0, True)
        pipe.log("last")
        assert json.loads(lines.readline())["event"] == "last"


def test_record_that_cannot_be_formatted_is_lost_and_does_not_raise(pipe: Pipe) -> None:
    pipe.logger.info("%d", "no number")
    pipe.log("next")
    assert pipe.read(1) == ["next"]
    assert pipe.writer.lost() == {"other": 1, "audit": 0}


def test_base_class_of_python_3_13_gets_no_lock_that_it_requires(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signer in its image ended with its first line: the image has Python 3.13."""

    def handle(handler: logging.Handler, record: logging.LogRecord) -> bool:
        with handler.lock:  # type: ignore[union-attr]
            handler.emit(record)
        return True

    monkeypatch.setattr(logging.Handler, "handle", handle)
    pipe.log("first")
    assert pipe.read(1) == ["first"]


def test_failed_write_is_repeated(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example while the disk is full. Meanwhile the log becomes unhealthy."""
    failed, may_write, write = Event(), Event(), os.write

    def fail(descriptor: int, line: bytes) -> int:
        if not may_write.is_set():
            failed.set()
            raise OSError
        return write(descriptor, line)

    monkeypatch.setattr(os, "write", fail)
    pipe.log("text")
    assert failed.wait(30)
    pipe.seconds = 30
    assert not pipe.writer.is_healthy()
    may_write.set()
    assert pipe.read(1) == ["text"]


def test_exit_does_not_wait_for_a_blocked_pipe(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_FLUSH_SECONDS", 0.1)
    pipe.log("x" * 2 * _PIPE_BYTES)
    pipe.writer.flush()
    pipe.writer.close()
