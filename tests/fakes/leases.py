"""Leases in memory, as an API server keeps them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from common.errors import ApiServerUnavailable
from signer.kube.leases import Lease


@dataclass(slots=True)
class FakeLeases:
    """The Leases of one namespace."""

    stored: dict[str, Lease] = field(default_factory=dict)
    away: bool = False
    version: int = 0

    def all(self, label: str) -> Sequence[Lease]:
        """Return the Leases that have this label, with any value."""
        self._require_server()
        return [lease for lease in self.stored.values() if label in lease.labels]

    def renew(
        self, name: str, *, holder: str, seconds: int, labels: Mapping[str, str], now: datetime
    ) -> None:
        """Write the time of renewal; create the Lease if it does not exist."""
        self._require_server()
        assert seconds > 0
        self.version += 1
        old = self.stored.get(name)
        lease = Lease(
            name=name,
            uid=f"uid {self.version}" if old is None else old.uid,
            resource_version=str(self.version),
            labels=dict(labels),
            holder=holder,
            renewed=now.isoformat(),
        )
        self.stored[name] = lease

    def delete(self, name: str) -> None:
        """Delete a Lease in whatever state it is."""
        self._require_server()
        self.stored.pop(name, None)

    def delete_unchanged(self, lease: Lease) -> None:
        """Delete a Lease, unless it has changed since it was read."""
        self._require_server()
        if self.stored.get(lease.name) == lease:
            del self.stored[lease.name]

    def touch(self, name: str) -> None:
        """Write a Lease without renewing it."""
        self.version += 1
        self.stored[name] = replace(self.stored[name], resource_version=str(self.version))

    def _require_server(self) -> None:
        if self.away:
            raise ApiServerUnavailable("away")
