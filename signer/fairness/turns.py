"""Turns of tenants for a number of workers.

A tenant (a namespace of the management cluster) gets one more worker only while `its workers < free
workers`. So one tenant holds at most half of the workers, and two tenants hold a third each. A
worker is left for the next tenant as long as there are fewer hostile tenants than workers. The rule
needs no configured share, and it hardly limits a tenant that is alone. This is the dynamic
threshold of A. Choudhury and E. Hahne, "Dynamic queue length thresholds for shared-memory packet
switches" (1998).
"""

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

    def __init__(self, workers: int, empty: Callable[[], W]) -> None:
        """Keep what waits of a tenant in a value that `empty` returns."""
        self.free = workers
        self.busy: Counter[str] = Counter()
        """How many workers each tenant holds, where it holds any."""
        self._empty = empty
        self._waiting: OrderedDict[str, W] = OrderedDict()

    def waiting(self, tenant: str) -> W:
        """Return what waits of a tenant; the caller adds to it and removes from it."""
        return self._waiting.setdefault(tenant, self._empty())

    def next(self) -> Iterator[tuple[str, W]]:
        """Yield the tenants that may get a worker, and what waits of them."""
        return (item for item in self._waiting.items() if self.busy[item[0]] < self.free)

    def take(self, tenant: str) -> None:
        """Count a worker for a tenant, whose next turn comes after those of all others."""
        self._waiting.move_to_end(tenant)
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
            if not self._waiting[tenant]:
                del self._waiting[tenant]
