"""Platforms in memory: what they answer about each instance."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.errors import AttestationError
from signer.policy.policy import PlatformRules
from signer.seams import PlatformAnswer

RULES = PlatformRules(
    type="metal", credentials_file="/etc/signer/metal", locations=frozenset({"rack-1"})
)


def with_file(credentials_file: Path) -> PlatformRules:
    """Return the rules of a policy that names this file."""
    return replace(RULES, credentials_file=str(credentials_file))


@dataclass(slots=True)
class FakePlatforms:
    """A `PlatformSource` whose answers have arrived."""

    names: dict[str, Collection[str]] = field(default_factory=dict)
    """EndorsementKey names by provider ID."""
    vm_ids: dict[str, str] = field(default_factory=dict)
    """VM IDs by provider ID."""
    error: AttestationError | None = None
    asked: list[tuple[str, str, PlatformRules, str]] = field(default_factory=list)

    def answer(
        self, namespace: str, provider_id: str, rules: PlatformRules, *, expected: str
    ) -> PlatformAnswer:
        self.asked.append((namespace, provider_id, rules, expected))
        if self.error is not None:
            raise self.error
        return PlatformAnswer(
            endorsement_keys=frozenset(self.names.get(provider_id, ())),
            vm_id=self.vm_ids.get(provider_id),
        )
