"""Threads that a test runs when it wants, in place of those that compute in a line."""

from collections.abc import Callable
from threading import Thread

from signer.fairness.compute_line import ComputeLine


class LateThread(Thread):
    """Is alive until a test has run it."""

    ran = False

    def run(self) -> None:
        super().run()
        self.ran = True

    def is_alive(self) -> bool:
        return not self.ran


class LateLine(ComputeLine):
    """Keeps functions until they are run: a line in which others compute at first."""

    def __init__(self) -> None:
        super().__init__(1)
        self.submitted: list[tuple[str, LateThread]] = []
        self.exhausted = False

    def start(self, name: str, function: Callable[[], object]) -> Thread:
        if self.exhausted:
            raise RuntimeError("can't start new thread")
        thread = LateThread(target=function)
        self.submitted.append((name, thread))
        return thread

    def run(self) -> None:
        while self.submitted:
            self.submitted.pop(0)[1].run()
