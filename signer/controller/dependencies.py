"""What reconciliations depend on, as protocols that the controller and the tests implement."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from signer.controller.active_policies import PolicyInForce
from signer.inventory.machine_status import MachineCondition
from signer.issue.authority import CertificateAuthority
from signer.model import ChallengeKeys, ClaimStore, ClusterKey, Machine, OfferedKey
from signer.verify.platform_keys import PlatformKeySource


class PolicySource(Protocol):
    """The policies in force."""

    def for_cluster(self, key: ClusterKey) -> PolicyInForce:
        """Return the policy of a Cluster. Raises `Waiting` if it does not have exactly one."""


class ChallengeKeySource(Protocol):
    """Keys that challenges are made under."""

    def cached(self) -> ChallengeKeys:
        """Return the keys that were read last."""

    def refresh(self) -> ChallengeKeys:
        """Read the Secret and return its keys."""


class AuthoritySource(Protocol):
    """Certificate authorities of the clusters."""

    def authority(self, cluster: ClusterKey) -> CertificateAuthority:
        """Return the authority of a cluster."""


class RateLimiter(Protocol):
    """Limit on the rate of challenges, for each requester."""

    def acquire(self, requester: tuple[ClusterKey, str]) -> None:
        """Count one challenge; raises `TooManyChallenges` above the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of all reconciliations, of all clusters."""

    policies: PolicySource
    claims: ClaimStore
    challenge_keys: ChallengeKeySource
    authorities: AuthoritySource
    rate_limiter: RateLimiter
    platforms: PlatformKeySource
    note_machine: Callable[[MachineCondition], None]
    """Remembers the attestation of a Machine; another thread writes it."""
    note_key_request: Callable[[ClusterKey, Machine, str, Callable[[], OfferedKey]], None]
    """Remembers an unregistered key of a Machine; another thread writes it."""
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]
