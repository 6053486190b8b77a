"""A policy as a value; the defaults are those of the schema."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from common.errors import Waiting
from common.names import SUPPORTED_VERSIONS
from common.public_keys import PublicKey
from signer.errors import PolicyConflict, PolicyInvalid, PolicyMissing
from signer.kinds.cluster import ClusterKey
from signer.kinds.machine import Machine

PcrValues = Mapping[str, Mapping[int, frozenset[bytes]]]
"""Allowed digests by bank and PCR."""

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
"""Attestation keys that a policy may allow: scheme, curve or size, hash (A1)."""

EVENT_LOG_LISTS: Final = ("platformKeys", "signatureDatabases", "bootLoaders")
"""The keys of `eventLog` that have lists of digests."""
BANKS: Final = ("sha256", "sha384", "sha512")
"""PCR banks that a policy may select; SHA-1 is broken."""

MACHINE_PCR_BANK: Final = "sha256"
MACHINE_PCR: Final = 6
"""The PCR into which the firmware of a virtual machine measures its UUID (E2)."""


class PolicyMode(Enum):
    """Which certificates the signer decides on."""

    ATTESTATION = "Attestation"
    SERVING_ONLY = "ServingOnly"
    """Only requests to `kubernetes.io/kubelet-serving`; other programs issue client certificates
    of nodes, without attestation."""


class Approval(Enum):
    """Whether the signer writes its verdicts, or only reports them."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class TrustMode(Enum):
    """What makes an endorsement key trusted (E2)."""

    REGISTERED = "Registered"
    CERTIFIED = "Certified"
    REGISTERED_AND_CERTIFIED = "RegisteredAndCertified"
    FIRST_USE = "FirstUse"

    @property
    def needs_record(self) -> bool:
        """Whether an operator or the infrastructure provider must have registered the key."""
        return self in {TrustMode.REGISTERED, TrustMode.REGISTERED_AND_CERTIFIED}

    @property
    def needs_certificate(self) -> bool:
        """Whether a configured authority must have certified the key."""
        return self in {TrustMode.CERTIFIED, TrustMode.REGISTERED_AND_CERTIFIED}


class PcrMode(Enum):
    """Whether quoted PCR values are only logged, compared with an alarm, or enforced (Q4)."""

    RECORD = "Record"
    WARN = "Warn"
    ENFORCE = "Enforce"


class UnnamedCertificates(Enum):
    """What to do with endorsement certificates that name no machine, where names count (E2)."""

    WAIT = "Wait"
    ACCEPT = "Accept"
    """As without `certificateNames`: a TPM with such a certificate can join as any Machine."""


class NameReuse(Enum):
    """When another Machine may take over the claims of a deleted one (K1, K2)."""

    AFTER_MACHINE = "AfterMachine"
    AFTER_CERTIFICATE = "AfterCertificate"


class UnknownCredential(Enum):
    """What to do, with an alarm, about a request filed with an unknown certificate (K4)."""

    WARN = "Warn"
    DENY = "Deny"


class AutoApproveBindings(Enum):
    """What to do, with an alarm, about bindings that auto-approve node certificates (R0)."""

    REMOVE_WHEN_ATTESTED = "RemoveWhenAttested"
    """Remove them when no Node from before the opt-in lacks an attested certificate."""
    ALARM = "Alarm"
    REMOVE = "Remove"
    WAIT = "Wait"


class NodeLabels(Enum):
    """Whether the signer labels the Nodes whose TPM has attested."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class AccessReview(Enum):
    """Whether RBAC of the workload cluster must allow a requester its certificate (R4)."""

    SKIP = "Skip"
    REQUIRE = "Require"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstJoinRules:
    """Rules of OpenShift's machine-approver on first joins, besides the attestation (M7)."""

    within: timedelta
    """Maximum age of the Machine."""


class KubeletServingMode(Enum):
    """What to do with requests to `kubernetes.io/kubelet-serving`."""

    APPROVE = "Approve"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSelector:
    """The Clusters that a policy is for: one by name, or those of some namespaces and labels.

    Tenants write the labels of their Clusters. So a policy lists the namespaces whose tenants may
    choose it by a label; the reader requires the list.
    """

    cluster: ClusterKey | None = None
    namespaces: frozenset[str] = frozenset()
    """Not empty, unless `cluster` is given."""
    match_labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, key: ClusterKey, labels: Mapping[str, str]) -> bool:
        """Return whether the policy selects the Cluster with these labels."""
        if self.cluster is not None:
            return self.cluster == key
        return key.namespace in self.namespaces and self.match_labels.items() <= labels.items()


def describe_clusters(selector: ClusterSelector | None) -> str:
    """Return as words for which Clusters a policy is."""
    if selector is None:
        return "every other Cluster"
    if selector.cluster is not None:
        return str(selector.cluster)
    labels = "".join(f", {key}={value}" for key, value in sorted(selector.match_labels.items()))
    return f"Clusters of {', '.join(sorted(selector.namespaces))}{labels}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrVariant:
    """The allowed values of Machines that have all of these labels."""

    match_labels: Mapping[str, str]
    allowed: PcrValues


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrSignatureRules:
    """PCRs whose values the vendor of the boot image signs, as systemd-measure does (Q4)."""

    keys: Mapping[str, PublicKey]
    """The vendor's keys, by the fingerprint that systemd writes beside a signature."""
    pcrs: Mapping[str, tuple[int, ...]]
    """PCRs by bank. The node quotes them too. A signature is for all of these of one bank."""
    revoked: frozenset[bytes]
    """Policy digests that a key has signed and that no longer count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogRules:
    """Rules on the event log (Q4): an empty set or `False` is no rule, and there is at least one.

    The digests are those of the log, in the bank in which the log is replayed.
    """

    secure_boot: bool
    platform_keys: frozenset[bytes]
    signature_databases: frozenset[bytes]
    boot_loaders: frozenset[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformRules:
    """The platform that knows the endorsement keys of Machines without a registered key (E2)."""

    type: str
    """Name of an entry point of the group `node_attestation.platforms`."""
    credentials_file: str
    """Path of the file with the credentials of one account of the platform."""
    locations: frozenset[str]
    """Where instances may be, such as regions of AWS or folders of vSphere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateNameRules:
    """Which names in endorsement certificates count (E2); an empty set: this form does not."""

    gce_projects: frozenset[str] = frozenset()
    """Google Cloud projects whose instances a provider ID may name. Tenants write provider IDs."""
    domain_uuid_schemes: frozenset[str] = frozenset()
    """Schemes of provider IDs whose last segment is the UUID of a libvirt domain."""
    unnamed: UnnamedCertificates = UnnamedCertificates.WAIT

    @property
    def is_name_required(self) -> bool:
        """Whether a certificate without a name waits."""
        names = self.gce_projects | self.domain_uuid_schemes
        return bool(names) and self.unnamed is UnnamedCertificates.WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKeyRules:
    """Which endorsement keys are trusted (E2)."""

    trust: TrustMode = TrustMode.REGISTERED
    platform: PlatformRules | None = None
    certificate_authorities: tuple[str, ...] = ()
    """Paths of files or directories, which `signer.settings.trust_bundles` reads."""
    certificate_revocation_lists: tuple[str, ...] = ()
    allow_certificates_without_usage: bool = False
    """Accept endorsement certificates that have neither key usage nor extended key usage."""
    certificate_names: CertificateNameRules = CertificateNameRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationKeyRules:
    """Which attestation keys are accepted (A1), and who certifies them (A2)."""

    schemes: frozenset[str] = frozenset({"ecdsa-p256-sha256", "rsassa-2048-sha256"})
    certificate_authorities: tuple[str, ...] = ()
    """Files, as for endorsement keys. A policy names authorities for one kind of keys only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrRules:
    """Which PCRs are quoted (Q3), and which values are allowed (Q4)."""

    selection: Mapping[str, tuple[int, ...]] = field(
        default_factory=lambda: {"sha256": tuple(range(8))}
    )
    mode: PcrMode = PcrMode.RECORD
    allowed: PcrValues = field(default_factory=dict)
    variants: tuple[PcrVariant, ...] = ()
    until: Mapping[bytes, datetime] = field(default_factory=dict)
    """When a value of `allowed` or of a variant ends to count; the others never end."""
    signed_by: tuple[PcrSignatureRules, ...] = ()
    names_machine: bool = False
    """Whether PCR 6 names the machine, so that E2 decides about it instead of Q4."""

    def values_for(self, machine: Machine) -> PcrValues:
        """Return the allowed values of the first variant that matches the Machine, or `allowed`."""
        for variant in self.variants:
            if variant.match_labels.items() <= machine.labels.items():
                return variant.allowed
        return self.allowed

    def without_ended(self, allowed: PcrValues, now: datetime) -> PcrValues:
        """Return the allowed values that count now."""
        ended = {digest for digest, end in self.until.items() if end <= now}
        return {
            bank: {index: digests - ended for index, digests in by_index.items()}
            for bank, by_index in allowed.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNameRules:
    """Which names a node may have at its first join (M3)."""

    machine_name: bool = False
    """Whether the name of the Machine is a name of its node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRules:
    """The certificates that are issued, and the authorities that sign them (I1)."""

    lifetime: timedelta = timedelta(hours=168)
    allow_shared_authority: bool = False
    """Whether another Cluster whose policy allows it too may have the same CA key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalRules:
    """What the certificate must be with which a node files a request (K4)."""

    unknown_credential: UnknownCredential = UnknownCredential.WARN
    taint_unattested: bool = False
    """Whether Nodes get a taint while their renewal is refused or overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRules:
    """Requests to the built-in serving signer."""

    builtin: KubeletServingMode = KubeletServingMode.APPROVE
    node_ref_fallback: bool = False
    """Whether nodeRef may identify the Machine of a node without an AttestedNode.

    nodeRef is not proved: a node can write its own provider ID, and Cluster API follows it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules for some Clusters, in the parts that `spec` of a policy object has."""

    name: str
    clusters: ClusterSelector | None = None
    """`None`: every Cluster that no other policy selects."""
    mode: PolicyMode = PolicyMode.ATTESTATION
    approval: Approval = Approval.ENABLED
    minimum_version: str = SUPPORTED_VERSIONS[0]
    bootstrap_groups: frozenset[str] = frozenset({"system:bootstrappers"})
    endorsement_key: EndorsementKeyRules = EndorsementKeyRules()
    attestation_key: AttestationKeyRules = AttestationKeyRules()
    pcrs: PcrRules = PcrRules()
    event_log: EventLogRules | None = None
    node_names: NodeNameRules = NodeNameRules()
    first_join: FirstJoinRules | None = None
    """`None`: a Machine may join again, for example after its disk was replaced."""
    certificate: CertificateRules = CertificateRules()
    name_reuse: NameReuse = NameReuse.AFTER_MACHINE
    renewals: RenewalRules = RenewalRules()
    auto_approve_bindings: AutoApproveBindings = AutoApproveBindings.REMOVE_WHEN_ATTESTED
    node_labels: NodeLabels = NodeLabels.DISABLED
    access_review: AccessReview = AccessReview.SKIP
    serving: ServingRules = ServingRules()

    @property
    def certificate_authorities(self) -> tuple[str, ...]:
        """Return the files of the authorities, for endorsement keys or for attestation keys."""
        return (
            self.endorsement_key.certificate_authorities
            or self.attestation_key.certificate_authorities
        )

    @property
    def versions(self) -> tuple[str, ...]:
        """Return the accepted protocol versions, for the annotation `supported-versions`."""
        return SUPPORTED_VERSIONS[SUPPORTED_VERSIONS.index(self.minimum_version) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPolicy:
    """A policy with problems: the Clusters that it selects get no certificate.

    A refused policy without a selector, or with one that cannot be read, holds up those Clusters
    only that have no accepted policy: a misspelt key must not stop the whole fleet.
    """

    name: str
    clusters: ClusterSelector | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """Policies that are or would be in force together."""

    accepted: tuple[Policy, ...]
    refused: tuple[RefusedPolicy, ...] = ()

    @classmethod
    def of(cls, policies: Iterable["Policy | RefusedPolicy"]) -> "PolicySet":
        """Return the set of these policies, as a reader returned them."""
        policies = tuple(policies)
        return cls(
            accepted=tuple(p for p in policies if isinstance(p, Policy)),
            refused=tuple(p for p in policies if isinstance(p, RefusedPolicy)),
        )

    @property
    def every(self) -> tuple[Policy | RefusedPolicy, ...]:
        """Return all policies, also those that are refused."""
        return *self.accepted, *self.refused

    def selecting(
        self, key: ClusterKey, labels: Mapping[str, str]
    ) -> tuple[Policy | RefusedPolicy, ...]:
        """Return the policies that select a Cluster, or those without a selector if none does."""
        return (
            tuple(p for p in self.every if p.clusters and p.clusters.matches(key, labels))
            or tuple(p for p in self.accepted if p.clusters is None)
            or tuple(p for p in self.refused if p.clusters is None)
        )

    def is_serving_only(self, key: ClusterKey, labels: Mapping[str, str]) -> bool:
        """Return whether the Cluster has exactly one policy, and its mode is ServingOnly."""
        try:
            return self.for_cluster(key, labels).mode is PolicyMode.SERVING_ONLY
        except Waiting:
            return False

    def for_cluster(self, key: ClusterKey, labels: Mapping[str, str]) -> Policy:
        """Return the one policy of the Cluster.

        Raises:
            PolicyMissing: no policy is for this Cluster.
            PolicyConflict: several policies are; choosing one of them would be a guess.
            PolicyInvalid: the policy is refused; another one could demand less than this one.

        """
        found = self.selecting(key, labels)
        if not found:
            raise PolicyMissing("no policy is configured for this Cluster")
        if len(found) > 1:
            names = ", ".join(sorted(p.name for p in found))
            raise PolicyConflict("several policies select this Cluster", detail=names)
        [policy] = found
        if isinstance(policy, RefusedPolicy):
            raise PolicyInvalid("the policy of this Cluster is invalid", detail=policy.name)
        return policy
