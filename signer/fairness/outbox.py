"""A bounded batch of writes to one server: a tenant whose writes fail delays only itself.

A round has a few writes for each tenant, and a limit of time. A failed write pauses its tenant: for
two seconds, since one connection may be lost, and longer after each further round with a failure. A
few failing tenants end the round, because each failure may take half a minute. Writes are tried in
random order: in a fixed order, those that always fail would starve the others.
"""

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from common.errors import Unavailable
from signer.fairness.backoff import Backoff

_logger = logging.getLogger(__name__)

Write = tuple[str, Callable[[], object]]
"""A tenant, and a function that writes or raises."""

BATCH_SIZE: Final = 20
"""Writes of one tenant in one round."""
_PAUSE: Final = Backoff(initial=2.0, maximum=30.0)
"""Seconds without a write for a tenant, after a failure."""
MAX_FAILURES: Final = 3
"""Tenants whose writes fail in one round. The next round starts with others."""
MAX_SECONDS: Final = 30.0
"""Seconds after which a round starts no more writes: a server may answer each one late."""


class _Failed(NamedTuple):
    """The rounds in a row in which a write of a tenant failed."""

    times: int
    paused_until: float
    kept_until: float
    """When the count of failures is forgotten."""


class Outbox:
    """The rounds of one kind of write; for one thread."""

    def __init__(
        self,
        failure: str,
        tenant_field: str,
        monotonic: Callable[[], float],
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Log `failure` for each failed write, with the tenant as `tenant_field` and `fields`."""
        self._failure = failure
        self._tenant_field = tenant_field
        self._monotonic = monotonic
        self._fields = fields or {}
        self._failed: dict[str, _Failed] = {}

    def write(self, writes: Iterable[Write]) -> Exception | None:
        """Run one round; return its first failure. The next round needs what was not written."""
        now = self._monotonic()
        self._failed = {t: each for t, each in self._failed.items() if each.kept_until > now}
        batch = [write for write in writes if not self._is_paused(write[0], now)]
        random.shuffle(batch)
        counts: Counter[str] = Counter()
        failures: list[Exception] = []
        for tenant, write in batch:
            if counts[tenant] == BATCH_SIZE or self._is_paused(tenant, now):
                continue
            if len(failures) == MAX_FAILURES or self._monotonic() - now >= MAX_SECONDS:
                break
            counts[tenant] += 1
            try:
                write()
            except Exception as error:  # noqa: BLE001 # also an unexpected error is of one tenant only
                failures.append(error)
                self._pause(tenant)
                self._log(tenant, error)
        for tenant in counts:
            if not self._is_paused(tenant, now):
                self._failed.pop(tenant, None)
        return failures[0] if failures else None

    def _is_paused(self, tenant: str, now: float) -> bool:
        return tenant in self._failed and self._failed[tenant].paused_until > now

    def _pause(self, tenant: str) -> None:
        times = self._failed[tenant].times if tenant in self._failed else 0
        pause = _PAUSE.delay(times, random.random())  # noqa: S311 # spreads load
        end = self._monotonic() + pause
        self._failed[tenant] = _Failed(times + 1, end, end + _PAUSE.maximum)

    def _log(self, tenant: str, error: Exception) -> None:
        fields = {**self._fields, self._tenant_field: tenant}
        if isinstance(error, Unavailable):
            fields |= {"message": error.message, "detail": error.detail}
            _logger.warning(self._failure, extra={"fields": fields})
        else:
            _logger.error(self._failure, extra={"fields": fields}, exc_info=error)
