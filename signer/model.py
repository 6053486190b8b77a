"""Values that the signer reads from Kubernetes objects, without the shape of the API.

`signer/kube` and `signer/inventory` build them from raw objects, and `signer/verify` verifies them.
All are immutable, so a verdict is based on one state. `None` means unknown, and is not empty.
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Protocol

from common.errors import NodeNameInvalid
from common.node_identity import require_dns_name
from common.requests.binding import challenge_key_id, encode_fields, sha256
from signer.errors import ChallengeKeyUnknown
from signer.host_names import HostName

_CREDENTIAL_ID_PREFIX: Final = "X509SHA256="
_CREDENTIAL_ID: Final = re.compile(f"{_CREDENTIAL_ID_PREFIX}[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a CSR."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """A CertificateSigningRequest. The requester chooses annotations and request freely."""

    name: str
    uid: str
    resource_version: str
    created: datetime
    signer_name: str
    username: str
    groups: frozenset[str]
    credential_id: str
    """Digest of the client certificate that filed the request, as the API server writes it.

    Empty for other credentials, and from API servers before Kubernetes 1.32.
    """
    usages: tuple[str, ...]
    expiration_seconds: int | None
    request: bytes
    annotations: Mapping[str, str]
    """The annotations that the signer reads."""
    annotations_size: int
    """Bytes of all annotations, as JSON."""
    conditions: Mapping[str, Condition]
    certificate: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKey:
    """Identifies a Cluster of the management cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `namespace/name`, as users write it and as the caches of Clusters are keyed."""
        return f"{self.namespace}/{self.name}"

    def log_fields(self) -> dict[str, object]:
        """Return the fields that name the Cluster in a line of the log."""
        return {"cluster": str(self), "namespace": self.namespace}


@lru_cache(maxsize=4096)
def shared_cluster_key(namespace: str, name: str) -> ClusterKey:
    """Return the key of a Cluster; the thousands of cached objects that name it share one value."""
    return ClusterKey(namespace=namespace, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Cluster as the checks need it."""

    key: ClusterKey
    uid: str
    paused: bool
    client_signers: frozenset[str]
    """Opted-in client signer names (R0); the fields of a CRD that has them, else annotations."""
    control_plane_hosts: frozenset[HostName]
    """Names of the control plane endpoint and the `kubernetes` service, as `canonical_name` returns
    them."""
    service_networks: tuple[IPv4Network | IPv6Network, ...]
    """Addresses of Services, as the Cluster object gives them; empty where it gives none."""
    service_domain: str
    """DNS domain of the workload cluster, e.g. `cluster.local`."""
    auto_approve_bindings: frozenset[str]
    """ClusterRoleBindings of the workload cluster that approve CSRs without attestation."""
    keeps_bindings: bool = False
    """Whether the signer leaves them for Nodes from before the opt-in that have not attested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredKey:
    """A trusted statement that the Machine has this endorsement key."""

    source: str
    """Where the statement is, for messages, e.g. `Machine annotation`."""
    spki_sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One of a Machine's addresses, as Cluster API types them (Hostname, InternalIP, ...)."""

    type: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A Machine, or a member of a MachinePool that has no Machine object."""

    name: str
    uid: str
    provider_id: str
    deleting: bool
    bootstrap_ready: bool
    addresses: tuple[Address, ...]
    node_ref: str | None
    created: datetime | None
    """`None` for a pool member without a Machine object. `clusterctl move` makes it later."""
    bootstrap_token_id: str | None
    """ID of the token that the Machine's bootstrap configuration owns, if it owns one."""
    is_pool_member: bool
    labels: Mapping[str, str]
    registered_keys: tuple[RegisteredKey, ...]
    """From the annotations on Machine and infrastructure object."""
    registered_keys_error: str | None
    """Why such an annotation could not be read; the Machine may then have more registered keys."""
    vm_id: str | None = None
    """UUID of its virtual machine in lower case, by the annotation on the Machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A Node of the workload cluster; its provider ID is the node's own claim."""

    name: str
    provider_id: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that the signer writes, see `signer.inventory.node_labels`; no others."""
    created: datetime | None = None
    """As the API server of the workload cluster set it; no client can choose it."""
    is_control_plane: bool = False
    """By its label, which NodeRestriction keeps from kubelets."""
    tainted: bool = False
    """Whether it has the taint that the signer writes, see `signer.inventory.node_taints`."""


class TrustBasis(Enum):
    """On what basis a claim was made."""

    REGISTERED = "Registered"
    CERTIFICATE_NAME = "CertificateName"
    CERTIFICATE = "Certificate"
    FIRST_USE = "FirstUse"

    @property
    def names_machine(self) -> bool:
        """Whether a trusted statement says which Machine has the key: it outranks the others."""
        return self in {TrustBasis.REGISTERED, TrustBasis.CERTIFICATE_NAME}

    def outranks(self, other: "TrustBasis | None") -> bool:
        """Return whether a request on this basis takes over a claim on the other one (K1, K2).

        A name in a certificate is a statement of the platform, so a record of an operator outranks
        it. `None` is a basis that is not known.
        """
        if self is TrustBasis.REGISTERED:
            return other is not TrustBasis.REGISTERED
        return self.names_machine and other in {TrustBasis.CERTIFICATE, TrustBasis.FIRST_USE}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHolder:
    """`EndorsementKey.spec.heldBy`: which node holds the key, and on what basis."""

    cluster: ClusterKey
    node_name: str
    provider_id: str
    basis: TrustBasis


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One entry of `EndorsementKey.spec.registeredFor`; `None` matches nothing, not anything."""

    cluster: ClusterKey
    provider_id: str | None
    machine_name: str | None
    node_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One entry of `EndorsementKey.spec.releasedFrom`: nodes that may not use the key anymore."""

    cluster: ClusterKey
    provider_id: str | None
    """`None` means every provider ID of the Cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ban:
    """`EndorsementKey.spec.banned`."""

    since: datetime | None = None
    node: tuple[ClusterKey, str] | None = None
    """The node whose certificates end, where no claim says it: its Cluster and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiftedBan:
    """`EndorsementKey.spec.banLifted`: the last ban that an operator lifted."""

    at: datetime
    certificates_too: bool
    """Whether the certificates that the ban ended are valid again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKeyObject:
    """An EndorsementKey; `name` is the hex SHA-256 of the canonical SubjectPublicKeyInfo."""

    name: str
    resource_version: str
    registered_for: tuple[Registration, ...]
    released_from: tuple[Release, ...]
    banned: bool
    held_by: KeyHolder | None
    uid: str = ""
    held_since: datetime | None = None
    """When its present holder first claimed it."""
    last_claimed: datetime | None = None
    """When a node claimed it last, or when the object was created if that is later."""
    term: int = 1
    """That of its next certificate, which a claim or an entry can exceed. A lift adds one."""
    ban: Ban = Ban()
    """What its ban says, if it is banned."""
    ban_lifted: LiftedBan | None = None

    def is_released_from(self, cluster: ClusterKey, provider_id: str) -> bool:
        """Return whether an operator released the key from these nodes."""
        return any(
            release.cluster == cluster and release.provider_id in {None, provider_id}
            for release in self.released_from
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmIdentity:
    """What an endorsement certificate says about its TPM; empty where it says nothing readable."""

    manufacturer: str = ""
    model: str = ""
    firmware: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAnswer:
    """What a platform says about an instance; empty if there is no such one, or it has no TPM."""

    endorsement_keys: frozenset[str] = frozenset()
    """Names of EndorsementKeys."""
    vm_id: str | None = None
    """UUID of the virtual machine in lower case, where quotes of the platform name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedKey:
    """An endorsement key that an offer names for a Machine. The TPM has not proved it."""

    name: str
    """Name of its EndorsementKey: the digest of its SubjectPublicKeyInfo in hex."""
    node_name: str
    requester: str
    """User name of the requester, such as `system:bootstrap:<token ID>`."""
    first_seen: datetime
    certificate: str
    """`Trusted`, or the reason why the signer does not trust the endorsement certificate."""
    identity: TpmIdentity
    certified_for: str = ""
    """The machine that the endorsement certificate names; empty if it names none."""
    """From the certificate; anyone can write it unless `certificate` is `Trusted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKeyRequest:
    """The keys offered for a Machine without a registered key; `name` is the Machine's."""

    cluster: ClusterKey
    name: str
    uid: str
    resource_version: str
    machine_uid: str
    provider_id: str
    keys: tuple[OfferedKey, ...]
    """In the order in which they were first seen; never replaced."""


class MachineState(Enum):
    """Whether the Machine of a claim exists. A complete claim is live only while it does."""

    PRESENT = "present"
    DELETING = "deleting"
    """It is being deleted, or may come: its Cluster is paused, as `clusterctl move` does it."""
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class BootCounters:
    """Boot counters of a quote, for the audit record and AttestedNode."""

    reset_count: int
    restart_count: int
    firmware_version: int


class BootState(Enum):
    """What the policy said about the measured boot when the node last attested (Q4)."""

    VERIFIED = "Verified"
    MISMATCH = "Mismatch"
    """A PCR had a value that the policy does not allow, and its mode is Warn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredValues:
    """What a TPM quoted and its event log shows, in hex, for operators: no verdict depends on it.

    The lists have the digests that a policy can allow in `eventLog`.
    """

    pcrs: Mapping[str, Mapping[str, str]]
    """Values by bank and PCR, of the PCRs for which the policy has values."""
    firmware: str = ""
    """Version that the firmware measured; empty if no event shows it."""
    secure_boot: bool | None = None
    platform_keys: tuple[str, ...] = ()
    signature_databases: tuple[str, ...] = ()
    boot_loaders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the last request of a node for a client certificate was denied, or waits."""

    reason: str
    message: str
    time: datetime
    request: str
    """Name of the CSR."""
    measured: MeasuredValues | None = None
    """What the policy refused, if the TPM of the claim quoted it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedNodeObject:
    """An AttestedNode; `name` is the one that `attested_node_name` gives."""

    name: str
    resource_version: str
    cluster: ClusterKey
    node_name: str
    provider_id: str
    machine_name: str
    """Empty when the claim names no Machine: a MachinePool's member may have none."""
    machine_uid: str
    """UID that the Machine had; `clusterctl move` gives Machines new ones. Empty as above."""
    endorsement_key: str
    credential_ids: tuple[str, ...]
    """IDs of the client certificates that the node may have, in the order of their issue.

    Empty where no signer has recorded one yet: that proves nothing.
    """
    not_after: datetime
    last_attested: datetime
    boot: BootCounters | None
    policy: str = ""
    """Name of the policy under which the node last attested. Empty in older claims."""
    basis: TrustBasis | None = None
    """That of its `KeyHolder`, for operators: no check reads it. `None` in older claims."""
    boot_state: BootState | None = None
    """`None` if that policy has no rules about PCRs and event log, and in older claims."""
    measured: MeasuredValues | None = None
    """What the node last attested with; `None` as above."""
    renewal_deadline: datetime | None = None
    """When the renewal of its client certificate is overdue. `None` before the first one, and in
    older claims."""
    last_refusal: Refusal | None = None
    """`None` since its last client certificate. For operators: no verdict depends on it."""
    term: int = 0
    """That of its client certificates; 0 before the first one."""
    since: datetime | None = None
    """When this key and term got the name."""
    others_end_at: datetime | None = None
    """When the last certificate in this name ends that is of another key or term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChallengeKeys:
    """The challenge keys that are accepted now, 32 bytes each; `repr` never shows them."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(repr=False)

    def by_id(self, identity: str) -> bytes:
        """Return the challenge key with this ID. Raises `ChallengeKeyUnknown`: neither has it."""
        for key in (self.current, self.previous):
            if key is not None and hmac.compare_digest(challenge_key_id(key), identity):
                return key
        raise ChallengeKeyUnknown("the challenge was made under a key that is not known here")


def credential_id(certificate_der: bytes) -> str:
    """Return the ID that API servers give to a client certificate, `X509SHA256=<hex>`."""
    return _CREDENTIAL_ID_PREFIX + sha256(certificate_der).hex()


def is_credential_id(value: str) -> bool:
    """Return whether a text has the form of `credential_id`."""
    return _CREDENTIAL_ID.fullmatch(value) is not None


def attested_node_name(cluster: ClusterKey, node_name: str) -> str:
    """Return the name of a node's AttestedNode: `<node>.<cluster>`, or a digest of both names.

    The digest is for Clusters whose name has a dot and for names that are too long. Two nodes never
    share a name: the last dot splits the first form, and the second has no dot (docs/protocol.md
    section 2).
    """
    if "." not in cluster.name:
        try:
            return require_dns_name(f"{node_name}.{cluster.name}")
        except NodeNameInvalid:
            pass
    return sha256(encode_fields(cluster.name, node_name)).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBack:
    """A loss of claims of one Cluster, as after a restore of the management cluster."""

    at: datetime
    """When the newest claim of before had attested."""
    until: datetime
    """When the last certificate of before ends: at most one longest lifetime after `at`."""

    def covers(self, seen: datetime, now: datetime) -> bool:
        """Return whether a claim may be lost that is newer than what was seen at this time."""
        return seen <= self.at and now < self.until


class Inventory(Protocol):
    """The known objects of one Cluster, from caches only: no method calls an API server.

    Every method raises `ApiServerUnavailable` while its cache has not been filled once.
    """

    def cluster(self) -> Cluster:
        """Return the Cluster itself."""

    def went_back(self, cluster: ClusterKey) -> WentBack | None:
        """Return the last loss of claims of a Cluster, such as this one."""

    def machines(self, provider_id: str) -> Sequence[Machine]:
        """Return the Machines and pool members of this Cluster with exactly this provider ID."""

    def machines_with_host_name(self, name: HostName) -> Sequence[Machine]:
        """Return the Machines of this Cluster with an address of this canonical name."""

    def machines_with_node_ref(self, node_name: str) -> Sequence[Machine]:
        """Return the Machines of this Cluster whose `nodeRef` names this Node."""

    def node(self, name: str) -> Node | None:
        """Return the workload cluster's Node of that name."""

    def nodes_with_provider_id(self, provider_id: str) -> Sequence[Node]:
        """Return the workload cluster's Nodes with exactly this provider ID."""

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Return the EndorsementKey of that name."""

    def registrations(self, *values: str) -> Sequence[tuple[str, Registration]]:
        """Return operators' registrations for this Cluster, with their EndorsementKey names.

        Returns at least those with one of the values in any field; the caller checks the field.
        """

    def attested_node(self, node_name: str) -> AttestedNodeObject | None:
        """Return this Cluster's AttestedNode for a node name."""

    def attested_nodes_with_provider_id(self, provider_id: str) -> Sequence[AttestedNodeObject]:
        """Return this Cluster's AttestedNodes with exactly this provider ID.

        A Machine has one node name: M3 compares a requested name with these.
        """

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject] | None:
        """Return the AttestedNodes of all Clusters that name this EndorsementKey.

        Those without a Machine in the caches are left out. `None` if the caches do not have the
        objects of all Clusters: then only the API server can say it.
        """


class ClaimStore(Protocol):
    """Reads and writes claims in the API server, without a cache (K1 to K4).

    Writes carry the resourceVersion that was read; a conflict raises `ClaimConflict`.
    """

    def endorsement_key(self, name: str) -> EndorsementKeyObject | None:
        """Read the EndorsementKey."""

    def attested_node(self, cluster: ClusterKey, node_name: str) -> AttestedNodeObject | None:
        """Read the AttestedNode of a node, of any Cluster. Raises `AttestedNodeUnreadable`."""

    def attested_nodes_with_key(self, key_name: str) -> Sequence[AttestedNodeObject]:
        """Read the AttestedNodes of all Clusters that name this EndorsementKey."""

    def create_endorsement_key(
        self, name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Create the EndorsementKey, held by this node."""

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        """Write `heldBy` (also when it is unchanged) under the resourceVersion of `current`."""

    def create_attested_node(self, node: AttestedNodeObject) -> AttestedNodeObject:
        """Create the AttestedNode; `resource_version` is ignored."""

    def replace_attested_node(
        self, current: AttestedNodeObject, new: AttestedNodeObject
    ) -> AttestedNodeObject:
        """Write all of `new` under the resourceVersion of `current`."""

    def machine_state(
        self, cluster: ClusterKey, provider_id: str, machine_name: str
    ) -> MachineState:
        """Return the state of the Machine of that Cluster with this name and provider ID.

        An empty name means any name. A Cluster that does not exist has no Machines. A Machine that
        a paused Cluster lacks is `DELETING`. Raises `ApiServerUnavailable` when the state is
        unknown.
        """
