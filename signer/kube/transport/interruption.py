"""How a thread that reads from a server is interrupted, also while it waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock

from signer.fairness.compute_line import waiting
from signer.kube.transport.http_connection import HttpConnection


class Interrupted(BaseException):
    """The thread is to end, or to begin again. No handler of errors may catch it."""


class Interruption:
    """Interrupts one thread; `interrupt` and `end` are for any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._event = Event()
        self._ended = False
        self._connection: HttpConnection | None = None

    def interrupt(self) -> None:
        """Raise `Interrupted` in the thread, once."""
        with self._lock:
            self._event.set()
            if self._connection is not None:
                self._connection.shut_down()

    def end(self) -> None:
        """Raise `Interrupted` in the thread, now and whenever it begins again."""
        self._ended = True
        self.interrupt()

    def begin_again(self) -> None:
        """Forget an interruption. Raises `Interrupted` if the thread is to end."""
        with self._lock:
            if self._ended:
                raise Interrupted
            self._event.clear()

    def check(self) -> None:
        """Raise `Interrupted` if the thread was interrupted."""
        if self._event.is_set():
            raise Interrupted

    def sleep(self, seconds: float) -> None:
        """Wait; raise `Interrupted` as soon as the thread is interrupted."""
        with waiting():
            self._event.wait(seconds)
        self.check()

    @contextmanager
    def waking(self, connection: HttpConnection) -> Iterator[None]:
        """Shut a connection down when the thread is interrupted while it uses it."""
        with self._lock:
            self._connection = connection
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._connection = None
