"""The credential list of a workload cluster, in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from signer.claims.credential_entry import CredentialEntry
from signer.inventory.credential_list import CredentialList, CredentialListClient


@dataclass(slots=True)
class FakeCredentialLists(CredentialListClient):
    """A `CredentialListClient` without an API server; `meanwhile` runs before each write."""

    texts: dict[str, str] | None = field(default_factory=dict)
    """Entries by node name, `None` for a cluster without the list."""
    size: int = 0
    meanwhile: Callable[[], object] = lambda: None
    published: list[Mapping[str, CredentialEntry | None]] = field(default_factory=list)

    def read(self) -> CredentialList | None:
        return None if self.texts is None else CredentialList(dict(self.texts), self.size)

    def publish(self, entries: Mapping[str, CredentialEntry | None]) -> None:
        """Merge, as the API server does."""
        self.meanwhile()
        self.published.append(dict(entries))
        assert self.texts is not None
        for name, entry in entries.items():
            if entry is None:
                self.texts.pop(name, None)
            else:
                self.texts[name] = entry.encode()
