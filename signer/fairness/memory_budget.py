"""Budgets of memory: each tenant has a share, so that one tenant's objects cost the others nothing.

A tenant is a namespace of the management cluster. All that is cached of its objects, and of the
workload clusters of its Clusters, counts for it.
"""

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import chain
from operator import attrgetter
from threading import Lock
from typing import Any, Final

from common.errors import ApiServerUnavailable
from signer.fairness.cpu_budget import CpuBudget

PER_TENANT: Final = 128 << 20
"""Bytes of one tenant at most: about 5,000 nodes that join together, with event logs of 20 KiB."""
TOTAL: Final = 448 << 20
"""Bytes of all tenants: with what is decoded at the moment, the process stays below 1 GiB."""
RESERVED: Final = 4 << 20
"""Bytes that every tenant may use even when others have used the total up."""
READING_PER_TENANT: Final = 64 << 20
READING_TOTAL: Final = 160 << 20
READING_RESERVED: Final = 5 << 20
"""The same for answers and events that are being read: a page has 4 MiB at most. A larger object,
which only a tenant of this cluster can make, is read when the total allows it."""


_LEAVES: Final = frozenset({str, bytes, int, bool, datetime, type(None)})
"""Types of most values. To look for their parts would cost more than their size."""


class MemoryBudget:
    """Counts bytes per tenant, for any number of threads."""

    def __init__(
        self, *, per_tenant: int = PER_TENANT, total: int = TOTAL, reserved: int = RESERVED
    ) -> None:
        self._per_tenant = per_tenant
        self._total = total
        self._reserved = reserved
        self._lock = Lock()
        self._used: Counter[str] = Counter()
        self._sum = 0
        self._refused: Counter[str] = Counter()

    def acquire(self, tenant: str, size: int) -> bool:
        """Count `size` bytes for the tenant if its budget allows; return whether it does."""
        with self._lock:
            used = self._used[tenant] + size
            fits_total = self._sum + size <= self._total or used <= self._reserved
            if used > self._per_tenant or not fits_total:
                self._refused[tenant] += 1
                return False
            self._used[tenant] = used
            self._sum += size
            return True

    def release(self, tenant: str, size: int) -> None:
        """Give back what was acquired."""
        with self._lock:
            self._sum -= size
            self._used[tenant] -= size
            if not self._used[tenant]:
                del self._used[tenant]

    def used(self) -> Mapping[str, int]:
        """Return the bytes in use by tenant."""
        with self._lock:
            return dict(self._used)

    def refused(self) -> Mapping[str, int]:
        """Return how many objects were refused by tenant, since the process started."""
        with self._lock:
            return dict(self._refused)


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The share of one tenant."""

    budget: MemoryBudget
    tenant: str

    def hold(self) -> "HeldBytes":
        """Return a holder of no bytes."""
        return HeldBytes(self.budget, self.tenant)


@dataclass(slots=True)
class HeldBytes:
    """Bytes that one holder has of the budget of a tenant; for one thread."""

    budget: MemoryBudget
    tenant: str
    size: int = 0

    def resize(self, size: int) -> bool:
        """Hold this many bytes; return whether the budget allows it."""
        if size > self.size and not self.budget.acquire(self.tenant, size - self.size):
            return False
        if size < self.size:
            self.budget.release(self.tenant, self.size - size)
        self.size = size
        return True

    def require(self, size: int) -> None:
        """Hold this many bytes. Raises `ApiServerUnavailable`: the budget does not allow it."""
        if not self.resize(size):
            raise ApiServerUnavailable(
                f"what the API servers of namespace {self.tenant} send at the same time exceeds"
                " its memory budget"
            )


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets in which the workload clusters of all tenants are read."""

    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """For what is cached."""
    reading: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(
            per_tenant=READING_PER_TENANT, total=READING_TOTAL, reserved=READING_RESERVED
        )
    )
    """For answers and events of watches that are not whole, or not decoded yet."""
    cpu: CpuBudget = field(default_factory=CpuBudget)


def deep_size(value: object) -> int:
    """Return the bytes of memory that a value uses, with everything that it refers to.

    The size in memory is not the size on the wire: of the 20 KB of a Node, 200 bytes are stored,
    and a string with one character outside ASCII may use four times its bytes. A part that occurs
    several times counts once.
    """
    parts = [value]
    for part in parts:  # grows during the loop
        kind = type(part)
        if kind not in _LEAVES:
            parts += _parts_reader(kind)(part)  # type: ignore[arg-type] # mypy sees no hash
    return sum(map(sys.getsizeof, {id(part): part for part in parts}.values()))


@cache
def _parts_reader(kind: type[object]) -> Callable[[Any], Iterable[object]]:
    """Return a function that returns what a value of this type refers to.

    To find the function by type costs half of asking each value what it is.
    """
    if issubclass(kind, (tuple, list, set, frozenset)):
        return iter
    if issubclass(kind, dict):
        return lambda part: chain(part.keys(), part.values())
    names = getattr(kind, "__struct_fields__", ())
    if dataclasses.is_dataclass(kind):
        names = tuple(f.name for f in dataclasses.fields(kind))
    if len(names) > 1:
        return attrgetter(*names)
    # With a single name, `attrgetter` returns no tuple.
    return lambda part: tuple(getattr(part, name) for name in names)
