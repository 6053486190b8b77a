"""Turns of tenants for a number of workers.

A tenant (a namespace of the management cluster) gets one more worker only while `its workers < free
workers`. So one tenant holds at most half of the workers, and two tenants hold a third each. A
worker is left for the next tenant as long as there are fewer hostile tenants than workers. The rule
needs no configured share, and it hardly limits a tenant that is alone. This is the dynamic
threshold of A. Choudhury and E. Hahne, "Dynamic queue length thresholds for shared-memory packet
switches" (1998).
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Generic, TypeVar

T = TypeVar("T")
W = TypeVar("W", bound=Sized)


def in_turn(items: Iterable[T], tenant: Callable[[T], str]) -> list[T]:
    """Return the first item of each tenant, then the second of each, and so on."""
    before: Counter[str] = Counter()
    placed = []
    for item in items:
        placed.append((before[tenant(item)], item))
        before[tenant(item)] += 1
    return [item for _, item in sorted(placed, key=lambda entry: entry[0])]


class Turns(Generic[W]):
    """What waits of each tenant, in the order of their turns. Not thread-safe."""

    def __init__(
        self,
        workers: int,
        empty: Callable[[], W],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what waits of a tenant in a value that `empty` returns."""
        self._monotonic = monotonic
        self._without_since: dict[str, float] = {}
        """By tenant of whom something waits and who holds no worker: since when that is so."""
        self.free = workers
        self.busy: Counter[str] = Counter()
        """How many workers each tenant holds, where it holds any."""
        self._empty = empty
        self._waiting: OrderedDict[str, W] = OrderedDict()

    def waiting(self, tenant: str) -> W:
        """Return what waits of a tenant; the caller adds to it and removes from it."""
        if tenant not in self.busy:
            self._without_since.setdefault(tenant, self._monotonic())
        return self._waiting.setdefault(tenant, self._empty())

    def next(self) -> Iterator[tuple[str, W]]:
        """Yield the tenants that may get a worker, and what waits of them."""
        return (item for item in self._waiting.items() if self.busy[item[0]] < self.free)

    def take(self, tenant: str) -> None:
        """Count a worker for a tenant, whose next turn comes after those of all others."""
        self._waiting.move_to_end(tenant)
        self._without_since.pop(tenant, None)
        self.busy[tenant] += 1
        self.free -= 1

    def release(self, tenant: str) -> None:
        """Give a worker of a tenant back."""
        self.busy[tenant] -= 1
        self.free += 1
        self.forget_idle(tenant)

    def forget_idle(self, tenant: str) -> None:
        """Forget a tenant of whom nothing waits and who holds no worker."""
        if not self.busy[tenant]:
            del self.busy[tenant]
            if self._waiting[tenant]:
                self._without_since.setdefault(tenant, self._monotonic())
            else:
                del self._waiting[tenant]
                self._without_since.pop(tenant, None)

    def longest_wait(self, may_start: Callable[[W], bool]) -> float:
        """Return for how many seconds a tenant who holds no worker has waited for one.

        A tenant who holds one is held back by its own share, if at all. `may_start` returns whether
        any of what waits of a tenant may start.
        """
        since = (
            at for tenant, at in self._without_since.items() if may_start(self._waiting[tenant])
        )
        return max(0.0, self._monotonic() - min(since, default=self._monotonic()))
