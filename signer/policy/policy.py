"""What a policy says, as values. The defaults are those of the schema; none of them lets all in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final

from common.names import SUPPORTED_VERSIONS
from signer.errors import PolicyMissing
from signer.model import ClusterKey, Machine

PcrValues = Mapping[str, Mapping[int, frozenset[bytes]]]
"""Allowed digests, by bank and PCR."""

SCHEMES: Final = frozenset(
    {
        *(
            f"ecdsa-{curve}-{digest}"
            for curve in ("p256", "p384")
            for digest in ("sha256", "sha384")
        ),
        *(
            f"{scheme}-{bits}-{digest}"
            for scheme in ("rsassa", "rsapss")
            for bits in (2048, 3072, 4096)
            for digest in ("sha256", "sha384")
        ),
    }
)
"""Attestation keys that a policy may list: scheme, curve or size, hash (A1)."""

BANKS: Final = ("sha256", "sha384", "sha512")
"""PCR banks that a policy may ask for; SHA-1 proves nothing any more."""


class TrustMode(Enum):
    """What makes an endorsement key trusted (E2)."""

    REGISTERED = "Registered"
    CERTIFIED = "Certified"
    REGISTERED_AND_CERTIFIED = "RegisteredAndCertified"
    FIRST_USE = "FirstUse"

    @property
    def needs_record(self) -> bool:
        """Whether somebody with authority has to name the key."""
        return self in {TrustMode.REGISTERED, TrustMode.REGISTERED_AND_CERTIFIED}

    @property
    def needs_certificate(self) -> bool:
        """Whether a configured authority has to certify the key."""
        return self in {TrustMode.CERTIFIED, TrustMode.REGISTERED_AND_CERTIFIED}


class PcrMode(Enum):
    """What is done with quoted PCR values (Q4)."""

    RECORD = "Record"
    ENFORCE = "Enforce"


class NameReuse(Enum):
    """When a claim of a Machine that is gone may be taken over (K1, K2)."""

    AFTER_MACHINE = "AfterMachine"
    AFTER_CERTIFICATE = "AfterCertificate"


class AutoApproveBindings(Enum):
    """What is done about kubeadm's auto-approving bindings (R0). All of them raise the alarm."""

    ALARM = "Alarm"
    REMOVE = "Remove"
    WAIT = "Wait"


class KubeletServingMode(Enum):
    """What is done with requests to `kubernetes.io/kubelet-serving`."""

    APPROVE = "Approve"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrVariant:
    """Allowed values for the Machines that have all of these labels."""

    match_labels: Mapping[str, str]
    allowed: PcrValues


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogRules:
    """What the measured boot must show (Q4); an empty set asks nothing, and not all are empty.

    Digests are of the bank that the log is replayed in, as they stand in the log.
    """

    secure_boot: bool
    platform_keys: frozenset[bytes]
    signature_databases: frozenset[bytes]
    boot_loaders: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Today's rules for one Cluster, or (`cluster` is `None`) for every other one."""

    name: str
    cluster: ClusterKey | None = None
    minimum_version: str = SUPPORTED_VERSIONS[0]
    bootstrap_groups: frozenset[str] = frozenset({"system:bootstrappers"})
    trust: TrustMode = TrustMode.REGISTERED
    certificate_authorities: tuple[str, ...] = ()
    """Paths of files or folders; reading them is the command line's business."""
    certificate_revocation_lists: tuple[str, ...] = ()
    attestation_key_schemes: frozenset[str] = frozenset({"ecdsa-p256-sha256", "rsassa-2048-sha256"})
    pcr_selection: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {"sha256": tuple(range(8))}
    )
    pcr_mode: PcrMode = PcrMode.RECORD
    pcr_allowed: PcrValues = field(default_factory=dict)
    pcr_variants: tuple[PcrVariant, ...] = ()
    event_log: EventLogRules | None = None
    machine_name_is_node_name: bool = False
    certificate_lifetime: timedelta = timedelta(hours=168)
    allow_shared_authority: bool = False
    """Whether another Cluster whose policy allows it too may have the same CA key (I1)."""
    name_reuse: NameReuse = NameReuse.AFTER_MACHINE
    auto_approve_bindings: AutoApproveBindings = AutoApproveBindings.REMOVE
    builtin_serving: KubeletServingMode = KubeletServingMode.APPROVE
    serving_by_node_ref: bool = False
    """Whether a node without an AttestedNode is found by nodeRef; a sign, never a proof."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The protocol versions that are spoken with this cluster, for `supported-versions`."""
        return SUPPORTED_VERSIONS[SUPPORTED_VERSIONS.index(self.minimum_version) :]

    def pcr_values_for(self, machine: Machine) -> PcrValues:
        """Return the values of the first variant that fits the Machine, else the general ones."""
        for variant in self.pcr_variants:
            if variant.match_labels.items() <= machine.labels.items():
                return variant.allowed
        return self.pcr_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """All policies of a file."""

    by_cluster: Mapping[ClusterKey, Policy]
    default: Policy | None

    def for_cluster(self, key: ClusterKey) -> Policy:
        """Return the Cluster's own policy, else the default one.

        Raises:
            PolicyMissing: there is neither.

        """
        policy = self.by_cluster.get(key, self.default)
        if policy is None:
            raise PolicyMissing("no policy is configured for this Cluster")
        return policy

    def all(self) -> tuple[Policy, ...]:
        """Return every policy once."""
        own = tuple(self.by_cluster.values())
        return own if self.default is None else (*own, self.default)
