"""What reconciliations depend on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from signer.controller.policies.active import ActivePolicies
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.controller.reconcile.limits import ChallengeRateLimiter, RequesterShares
from signer.controller.reconcile.withheld_certificates import WithheldCertificates
from signer.controller.recording_writer import RecordingCsrWriter
from signer.inventory.cluster_api.machine_status import MachineCondition
from signer.inventory.ended_certificates import EndedCertificatesClient
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore
from signer.kinds.attested_node import AttestedNodeObject, Refusal
from signer.kinds.cluster import ClusterKey
from signer.kinds.key_request import OfferedKey
from signer.kinds.machine import Machine
from signer.seams import ClaimStore, Inventory
from signer.verify.platform_keys import PlatformSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Dependencies of all reconciliations, of all clusters."""

    policies: ActivePolicies
    claims: ClaimStore
    challenge_keys: ChallengeKeyStore
    authorities: ClusterAuthorities
    rate_limiter: ChallengeRateLimiter
    platforms: PlatformSource
    enqueue_condition: Callable[[MachineCondition], None]
    """Remembers the attestation of a Machine; another thread writes it."""
    enqueue_refusal: Callable[[AttestedNodeObject, Refusal], None]
    """Remembers why a node was refused; another thread writes it into the claim of the node."""
    enqueue_key_request: Callable[[ClusterKey, Machine, str, Callable[[], OfferedKey]], None]
    """Remembers an unregistered key of a Machine; another thread writes it."""
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """One workload cluster: its inventory, its CSRs, and what is remembered of its requests."""

    key: ClusterKey
    inventory: Inventory
    csrs: RecordingCsrWriter
    ended: EndedCertificatesClient
    shares: RequesterShares
    withheld: WithheldCertificates = field(default_factory=WithheldCertificates)
    on_authority_failure: Callable[[], None] = lambda: None
    """Requests that the authority of the cluster is read again, so that its state is reported."""
