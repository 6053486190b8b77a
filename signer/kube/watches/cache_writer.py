"""Reads the objects of one collection into its cache, at the expense of their tenants.

All namespaces of the management cluster share one watch, so a pause of the watch would delay every
tenant. The watch goes on, and the objects of a tenant above its share of CPU time wait: of each the
newest version. They count for the tenant's memory, and are read when its share allows it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from threading import Event, RLock
from typing import Any, Final, Generic, TypeVar

import msgspec

from signer.fairness.compute_line import waiting
from signer.fairness.cpu_budget import CpuBudget
from signer.kinds.decode import Source, object_key
from signer.kube.scan import identify
from signer.kube.unreadable import Unreadable, describe_unreadable
from signer.kube.watches.cache import Cache

_logger: Final = logging.getLogger(__name__)
V = TypeVar("V")
StartThread = Callable[[str, Callable[[], None]], object]
"""Calls a function on a thread of this name. Raises `RuntimeError` if none can be started."""


class CacheWriter(Generic[V]):
    """The only writer of a cache: the thread of its watch, and one for the objects that wait."""

    def __init__(
        self,
        cache: Cache[V],
        read: Callable[[Source], V | None],
        *,
        log_fields: Mapping[str, object],
        cpu: CpuBudget | None,
        start: StartThread,
    ) -> None:
        """Charge each object to its namespace; without `cpu`, somebody else charges its bytes.

        Objects that wait are read on a thread that `start` starts when there is the first one.
        """
        self._cache = cache
        self._reader = read
        self._log_fields = log_fields
        self._cpu = cpu
        self._start = start
        self._closed = Event()
        self._sleep = self._closed.wait
        self._lock = RLock()
        """Held while an object is stored or deleted, by either thread; never while one waits."""
        self._waiting: dict[str, dict[str, bytes]] = {}
        """Objects that wait, by tenant and key."""
        self._loading = cache.begin_load()
        self._over_budget: set[str] = set()
        """Tenants of whom an object exceeded the budget of memory, since the last list."""
        self._unreadable: set[str] = set()
        """Tenants of whom an object could not be read, since the last list."""
        self._failed = False

    @property
    def needs_list(self) -> bool:
        """Return whether the cache lacks an object that the next list may bring."""
        return self._failed or bool(self._over_budget)

    def begin(self) -> None:
        """Leave out what this thread did so far: it may have worked for another tenant."""
        if self._cpu is not None:
            self._cpu.begin()

    def distrust(self) -> None:
        """Let nothing be read until the end of the next list."""
        self._cache.distrust()

    def begin_list(self) -> None:
        """Begin a list."""
        self._loading = self._cache.begin_load()
        self._over_budget.clear()
        self._unreadable.clear()
        self._failed = False

    def store_listed(self, body: msgspec.Raw) -> None:
        """Store an object of the list. Raises `ValueError`: it has no name."""
        self.begin()
        try:
            key = object_key(body)
        except ValueError:
            key = identify(bytes(body)).key
        with self._lock:
            if not self._must_wait(key, body, self._loading.hold):
                value = self._read(key, body)
                if isinstance(value, Unreadable):
                    self._loading.refuse(key, value)
                elif value is not None:
                    self._loading.store(key, value)
                self._charge(key)

    def finish_list(self) -> Iterator[None]:
        """Delete what the list does not have; yield after each value."""
        with self._lock:
            for objects in self._waiting.values():
                for key in objects.keys() - self._loading.listed:
                    self._drop_waiting(key)
        yield from self._loading.finish()
        self._report_refusals()

    def store(self, key: str, body: msgspec.Raw) -> None:
        """Store an object that is new or has changed."""
        with self._lock:
            if not self._must_wait(key, body, self._cache.hold):
                self._store(key, body)
                self._charge(key)
            self._report_refusals()

    def delete(self, key: str) -> None:
        """Delete an object."""
        with self._lock:
            self._drop_waiting(key)
            self._cache.delete(key)
            self._charge(key)

    def close(self) -> None:
        """Drop what waits."""
        self._closed.set()
        with self._lock:
            for objects in self._waiting.values():
                for key in tuple(objects):
                    self._drop_waiting(key)

    def _charge(self, key: str) -> float:
        """Charge the tenant for the work since `begin`; return for how long it has to wait."""
        tenant = self._cache.tenant_of(key)
        return self._cpu.charge(tenant) if self._cpu is not None and tenant else 0.0

    def _must_wait(self, key: str, body: msgspec.Raw, hold: Callable[[str, int], bool]) -> bool:
        """Let an object wait if its tenant is above its share; return whether it is."""
        tenant = self._cache.tenant_of(key)
        if not self._charge(key) and tenant not in self._waiting:
            return False
        if not self._waiting:
            # Before anything is counted: there may be no thread. It begins when the lock is free.
            self._start(f"late {self._log_fields['objects']}", self._read_waiting)
        self._drop_waiting(key)
        content = bytes(body)
        if hold(key, len(content)):
            self._waiting.setdefault(tenant, {})[key] = content
        return True

    def _drop_waiting(self, key: str) -> None:
        content = self._waiting.get(self._cache.tenant_of(key), {}).pop(key, None)
        if content is not None:
            self._cache.release(key, len(content))

    def _read_waiting(self) -> None:
        """Read the objects that wait, one by one, each when the share of its tenant allows it."""
        while True:
            with self._lock:
                pauses = [self._read_next(tenant) for tenant in tuple(self._waiting)]
                if not self._waiting:
                    return
            with waiting():
                self._sleep(min(pauses))

    def _read_next(self, tenant: str) -> float:
        """Read an object that waits, if there is one and the share of its tenant allows it.

        Return the seconds until the next one.
        """
        objects, pause = self._waiting[tenant], 0.0
        if objects:
            self.begin()
            key, content = next(iter(objects.items()))
            pause = self._charge(key)
            if pause:
                return pause
            self._drop_waiting(key)
            try:
                self._store(key, content)
            except Exception:
                # A bug of ours in an event handler.
                _logger.exception("watch failed", extra=self._fields())
                self._failed = True
            self._report_refusals()
            pause = self._charge(key)
        if objects:
            return pause
        del self._waiting[tenant]
        self._cache.end_wait(tenant)
        return 0.0

    def _store(self, key: str, body: bytes | msgspec.Raw) -> None:
        value = self._read(key, body)
        if isinstance(value, Unreadable):
            self._cache.refuse(key, value)
        elif value is None:
            self._cache.delete(key)
        else:
            self._cache.upsert(key, value)

    def _read(self, key: str, body: bytes | msgspec.Raw) -> V | Unreadable | None:
        """Return the value of an object; `None` for one that is not kept."""
        try:
            return self._reader(body)
        except Exception as error:  # noqa: BLE001 # also a bug of ours: the watch goes on
            self._report_unreadable(key, error)
            return describe_unreadable(body, error, key)

    def _report_unreadable(self, key: str, error: Exception) -> None:
        """Log one unreadable object of each tenant, once per list, so that none fills the log."""
        tenant = self._cache.tenant_of(key)
        if tenant not in self._unreadable:
            fields = self._fields(namespace=tenant, object=key, alarm=True)
            _logger.error("unreadable object", exc_info=error, extra=fields)
            self._unreadable.add(tenant)

    def _report_refusals(self) -> None:
        """Log each tenant, once per list, whose objects exceed its budget of memory."""
        for tenant in self._cache.incomplete - self._over_budget:
            fields = {"namespace": tenant, "alarm": True}
            _logger.warning("objects exceed the memory budget", extra=self._fields(**fields))
            self._over_budget.add(tenant)

    def _fields(self, **more: object) -> dict[str, Any]:
        return {"fields": {**self._log_fields, **more}}
