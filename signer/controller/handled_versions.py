"""Versions of one cluster's CSRs that need no reconciliation, because this signer wrote them.

A write gives a CSR a new resourceVersion, and the watch delivers it later. Until then the cache has
a version that the write replaced: to verify it again would only lead to a conflict. The version
that the last write of a finished reconciliation made needs no verification either.
"""

from threading import Lock

from signer.model import Csr


class HandledVersions:
    """resourceVersions by CSR name, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._versions: dict[str, set[str]] = {}

    def add(self, name: str, versions: set[str]) -> None:
        """Note versions of a CSR that need no reconciliation."""
        with self._lock:
            self._versions.setdefault(name, set()).update(versions)

    def observe(self, name: str, csr: Csr | None) -> None:
        """Forget a CSR's versions if the cache now has another one, or no such CSR."""
        with self._lock:
            if csr is None or csr.resource_version not in self._versions.get(name, ()):
                self._versions.pop(name, None)

    def includes(self, csr: Csr) -> bool:
        """Return whether this version of the CSR needs no reconciliation."""
        with self._lock:
            return csr.resource_version in self._versions.get(csr.name, ())

    def __len__(self) -> int:
        """Return the number of CSRs with such versions."""
        return len(self._versions)
