"""Secrets in memory. A write succeeds only with the current resourceVersion."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from common.errors import ApiServerUnavailable
from signer.kube.secrets import Secret


@dataclass(slots=True)
class FakeSecrets:
    """One API server's Secrets.

    `interrupt` runs once before the next write, `meanwhile` once during the next read.
    """

    stored: dict[tuple[str, str], Secret] = field(default_factory=dict)
    interrupt: Callable[[], None] | None = None
    meanwhile: Callable[[], None] | None = None
    away: bool = False
    reads: int = 0
    version: int = 0
    incarnation: int = 0

    def put(
        self,
        namespace: str,
        name: str,
        data: Mapping[str, bytes],
        *,
        type: str = "Opaque",  # noqa: A002 - the field's name
        labels: Mapping[str, str] | None = None,
    ) -> Secret:
        """Write a Secret unconditionally."""
        self.version += 1
        secret = Secret(
            namespace=namespace,
            name=name,
            uid=f"{namespace}/{name}/{self.incarnation}",
            resource_version=str(self.version),
            type=type,
            labels=dict(labels or {}),
            data=dict(data),
        )
        return self.store(secret)

    def store(self, secret: Secret) -> Secret:
        """Write a Secret with all its metadata unconditionally."""
        self.stored[secret.namespace, secret.name] = secret
        return secret

    def read(self, namespace: str, name: str) -> Secret | None:
        """Read."""
        self.reads += 1
        if self.away:
            raise ApiServerUnavailable("the API server is away")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self.stored.get((namespace, name))

    def create(self, namespace: str, name: str, data: Mapping[str, bytes]) -> Secret | None:
        """Create; raise an error if the Secret exists."""
        self._interrupted()
        return None if (namespace, name) in self.stored else self.put(namespace, name, data)

    def replace(self, current: Secret, data: Mapping[str, bytes]) -> Secret | None:
        """Write if the resourceVersion is the one that was read."""
        self._interrupted()
        stored = self.stored.get((current.namespace, current.name))
        if stored is None or stored.resource_version != current.resource_version:
            return None
        return self.put(current.namespace, current.name, data)

    def _interrupted(self) -> None:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            interrupt()
