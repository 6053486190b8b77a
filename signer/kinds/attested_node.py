"""AttestedNodes: the endorsement key and the machine that one node name of a Cluster belongs to.

All fields are in `spec`, since `clusterctl move` copies no status. That `lastRefusal` is there has
another reason: the claim that follows it removes it, and a status would need a second write.
Source: docs/protocol.md section 2.
"""

from enum import Enum
from typing import Annotated, Any, Final

import msgspec

from common.errors import NodeNameInvalid
from common.names import API_GROUP, API_VERSION
from common.node_identity import require_dns_name
from common.requests.binding import encode_fields, sha256
from signer.kinds.cluster import CLUSTER_NAME_LABEL, ClusterKey, shared_cluster_key
from signer.kinds.csr import CREDENTIAL_ID_PATTERN
from signer.kinds.decode import ClusterName, Fields, Name, Source, decode
from signer.kinds.endorsement_key import MOVE_LABELS, Term, TrustBasis, replacement_metadata
from signer.kinds.record import (
    SET,
    Column,
    Definition,
    Digest,
    MachineUid,
    NamespacedMetadata,
    ProviderId,
    Record,
    Time,
    encode,
    with_metadata,
)
from signer.kinds.resources import Resource

ATTESTED_NODES: Final = Resource(API_GROUP, API_VERSION, "AttestedNode", "attestednodes")

MAX_MESSAGE: Final = 1024
"""Characters of the message of a refusal."""

_Counter = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Hex = Annotated[str, msgspec.Meta(pattern=r"^(?:[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})\Z")]
"""A digest of a bank that a policy may select: SHA-256, SHA-384 or SHA-512."""
_Digests = Annotated[tuple[_Hex, ...], msgspec.Meta(max_length=3), SET]
_CredentialId = Annotated[str, msgspec.Meta(max_length=75, pattern=rf"^{CREDENTIAL_ID_PATTERN}\Z")]


class BootState(Enum):
    """What the policy said about the measured boot when the node last attested (Q4)."""

    VERIFIED = "Verified"
    MISMATCH = "Mismatch"
    """A PCR had a value that the policy does not allow, and its mode is Warn."""


class BootCounters(Record, frozen=True, kw_only=True):
    """Boot counters of a quote, for the audit record and AttestedNode."""

    reset_count: _Counter
    """How often the TPM has been reset."""
    restart_count: _Counter
    """How often the TPM has been restarted or resumed since the last reset."""
    firmware_version: Annotated[str, msgspec.Meta(pattern=r"^0x[0-9a-f]{16}\Z")]
    """Firmware version of the TPM, as its vendor encodes it."""


class MeasuredValues(Record, frozen=True, kw_only=True):
    """What a TPM quoted and its event log shows, in hex, for operators: no verdict depends on it.

    The lists have the digests that a policy can allow in `eventLog`.
    """

    pcrs: Annotated[
        dict[str, Annotated[dict[str, _Hex], msgspec.Meta(max_length=24)]],
        msgspec.Meta(max_length=3),
    ] = msgspec.field(default_factory=dict)
    """Values in hex by bank and PCR, of the quoted PCRs for which a policy can have lists."""
    firmware: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[ -~]*\Z")] = ""
    """The version that the firmware measured: one line, since operators read it in a question."""
    secure_boot: bool | None = None
    """Whether Secure Boot was on."""
    platform_keys: _Digests = ()
    """Digests of the Secure Boot variable PK."""
    signature_databases: _Digests = ()
    """Digests of the Secure Boot variable db."""
    boot_loaders: Annotated[tuple[_Hex, ...], msgspec.Meta(max_length=192), SET] = ()
    """Digests of the boot loaders."""


class Refusal(Record, frozen=True, kw_only=True):
    """Why the last request of a node for a client certificate was denied, or waits."""

    reason: Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[A-Z][A-Za-z0-9]*\Z")]
    """The reason, as in docs/reasons.md."""
    message: Annotated[str, msgspec.Meta(max_length=MAX_MESSAGE)]
    """What the signer requires."""
    time: Time
    """When the signer refused the request. A refusal for the same reason is written again after an
    hour."""
    request: Name
    """Name of the CertificateSigningRequest in the workload cluster."""
    measured: MeasuredValues | None = None
    """What the policy refused, if the TPM of this claim quoted it. `kubectl attestation pcrs
    review` shows it."""


class AttestedNodeSpec(Record, frozen=True, kw_only=True):
    """The claim. The signer writes it before it issues a certificate."""

    cluster_name: ClusterName
    """Name of the Cluster, in this namespace."""
    node_name: Name
    """Name of the node in the workload cluster."""
    provider_id: ProviderId
    """Provider ID of the machine that the node is."""
    machine_name: Name = ""
    """Name of the Machine. The claim is live while this Machine exists. Members of a MachinePool
    may have no Machine; then any Machine or pool member with the provider ID keeps the claim
    live."""
    machine_uid: MachineUid = ""
    """UID of the Machine when it last attested. It distinguishes a Machine that was created again
    under the same name; clusterctl move changes it, so it never ends a claim alone."""
    endorsement_key: Digest
    """Name of the EndorsementKey whose TPM has this node name."""
    credential_ids: Annotated[tuple[_CredentialId, ...], msgspec.Meta(max_length=16), SET] = ()
    """SHA-256 of the client certificates that the node may have, in the order of their issue, as
    the API server writes it into authentication.kubernetes.io/credential-id. The first is the one
    with which the node filed its last request; the signer writes each of the others here before it
    releases the certificate. Absent where no signer has recorded one yet: that proves nothing."""
    not_after: Time
    """When the last certificate of this node expires."""
    last_attested: Time
    """When the node's TPM last attested."""
    renewal_deadline: Time | None = None
    """When the renewal of the node's client certificate is overdue: after 85 % of its lifetime. The
    plugin renews it between 70 % and 80 %."""
    term: Term = 0
    """The term of the node's client certificates, as their group has it. Absent before the first
    one."""
    since: Time | None = None
    """When this key and term got the name."""
    others_end_at: Time | None = None
    """When the last certificate in this name ends that is of another key or term. Until then the
    workload cluster refuses writes with those."""
    last_refusal: Refusal | None = None
    """Why the last request for a client certificate was denied, or waits. The next client
    certificate removes it. Only requests count that were filed with a certificate of this claim, or
    whose quote is of this TPM. It is for operators; no check uses it."""
    policy: Annotated[str, msgspec.Meta(min_length=1, max_length=253)] = ""
    """Name of the policy under which the node last attested."""
    basis: TrustBasis | None = None
    """Why the signer trusted the endorsement key when the node last attested: Registered by an
    operator or a platform, CertificateName of this machine in a certificate or a quote, a vendor's
    Certificate, or FirstUse. It is for operators; no check uses it."""
    boot_state: BootState | None = None
    """What that policy said about the measured boot. Verified: PCRs and event log kept its rules.
    Mismatch: a PCR had a value that is not allowed, and the mode is Warn. Absent if the policy has
    no such rules."""
    measured: MeasuredValues | None = None
    """What the node last attested with. `kubectl attestation pcrs accept` allows it."""
    boot: BootCounters | None = None
    """Boot counters of the TPM. They are for operators; no check uses them."""


class AttestedNodeObject(AttestedNodeSpec, frozen=True, kw_only=True):
    """AttestedNode is the claim of one TPM to a node name. It is in the Cluster's namespace.

    Its name is <node>.<cluster>; where the Cluster's name has a dot, or the result is longer than
    253 characters, it is the SHA-256 of both names in lower-case hex, each name with its length
    before it. The signer creates it, and writes it only under the resourceVersion that it read, so
    that one TPM and no other has the name.
    """

    name: str
    namespace: str
    resource_version: str

    @property
    def cluster(self) -> ClusterKey:
        """Return the key of the Cluster."""
        return shared_cluster_key(self.namespace, self.cluster_name)


_NAMED: Final = (
    (
        "!self.spec.clusterName.contains('.')"
        " && size(self.spec.nodeName) + 1 + size(self.spec.clusterName) <= 253"
        " ? self.metadata.name == self.spec.nodeName + '.' + self.spec.clusterName"
        " : self.metadata.name.matches('^[0-9a-f]{64}$')"
    ),
    (
        "the name must be <node>.<cluster>, or where that is ambiguous or too long the SHA-256 of"
        " both names"
    ),
)
DEFINITION: Final = Definition(
    resource=ATTESTED_NODES,
    kind=AttestedNodeObject,
    spec=AttestedNodeSpec,
    short_name="atn",
    labels=MOVE_LABELS,
    columns=(
        Column(
            name="Node",
            path=".spec.nodeName",
            description="Name of the node in its workload cluster",
        ),
        Column(name="Cluster", path=".spec.clusterName", description="Name of the Cluster"),
        Column(name="Machine", path=".spec.machineName", description="Name of the Machine"),
        Column(
            name="Attested ago",
            path=".spec.lastAttested",
            description="Time since the TPM last attested",
            type="date",
        ),
        Column(
            name="Certificate until",
            path=".spec.notAfter",
            description="When the last certificate expires",
        ),
        Column(
            name="Refused",
            path=".spec.lastRefusal.reason",
            description="Why the last request for a certificate was denied, or waits",
        ),
        Column(
            name="Basis",
            path=".spec.basis",
            description="Why the signer trusted the endorsement key",
            is_wide=True,
        ),
        Column(
            name="Endorsement key",
            path=".spec.endorsementKey",
            description="Name of the EndorsementKey",
            is_wide=True,
        ),
        Column(
            name="Provider ID",
            path=".spec.providerID",
            description="Provider ID of the machine",
            is_wide=True,
        ),
    ),
    selectable=("nodeName", "clusterName", "machineName", "providerID", "endorsementKey"),
    rules=(_NAMED,),
)


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


class _Object(Fields):
    metadata: NamespacedMetadata
    spec: AttestedNodeSpec


def read_attested_node(source: Source) -> AttestedNodeObject:
    """Read an AttestedNode.

    Raises `ValueError`, also when its name is not the one that its `Cluster` and node give it:
    otherwise a writer of such objects could claim one node's name for another node.
    """
    found = decode(source, _Object)
    node = with_metadata(AttestedNodeObject, found.spec, found.metadata)
    if node.name != attested_node_name(node.cluster, node.node_name):
        raise ValueError(
            "the name of an AttestedNode must be that of its node and Cluster: delete the object"
        )
    return node


def encode_attested_node(node: AttestedNodeObject, resource_version: str) -> dict[str, Any]:
    """Return the body of an AttestedNode; `resource_version` is empty for a new one."""
    metadata: dict[str, Any] = {
        "name": node.name,
        "namespace": node.namespace,
        "labels": {**MOVE_LABELS, CLUSTER_NAME_LABEL: node.cluster_name},
    }
    if resource_version:
        metadata |= replacement_metadata(resource_version)
    return ATTESTED_NODES.manifest(metadata=metadata, spec=encode(node, AttestedNodeSpec))
