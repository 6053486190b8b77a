"""EndorsementKeys: the machines that a TPM is registered for, its ban, and the node that holds it.

All fields are in `spec`, since `clusterctl move` copies no status. Source: docs/protocol.md
section 2.
"""

from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final

import msgspec

from common.names import ANNOTATION_PREFIX, API_GROUP, API_VERSION
from common.node_identity import MAX_TERM
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Fields, Name, Source, decode
from signer.kinds.record import (
    ATOMIC,
    Column,
    Definition,
    InCluster,
    Metadata,
    ProviderId,
    Record,
    Time,
    encode,
    rules,
    with_metadata,
)
from signer.kinds.resources import Resource

ENDORSEMENT_KEYS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKey", "endorsementkeys", namespaced=False
)
MOVE_LABELS: Final = {"clusterctl.cluster.x-k8s.io/move": ""}
"""With this label `clusterctl move` moves an object that has no owner."""
_WRITTEN_UNDER: Final = ANNOTATION_PREFIX + "written-under"
_MAX_ENTRIES: Final = msgspec.Meta(max_length=64)

Term = Annotated[int, msgspec.Meta(ge=1, le=MAX_TERM)]
_Operator = Annotated[str, msgspec.Meta(max_length=256)]


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


class KeyHolder(InCluster, frozen=True, kw_only=True):
    """Which node holds the key, and on what basis."""

    node_name: Name
    """Name of the node."""
    provider_id: ProviderId
    """Provider ID of the machine that the node is."""
    basis: TrustBasis
    """What the claim is based on. A claim by Registered replaces one of the others."""
    since: Time | None = None
    """When the node first claimed the key."""
    last_claimed: Time | None = None
    """When the node claimed the key last, at its join or its last renewal."""


class Registration(InCluster, frozen=True, kw_only=True):
    """One machine. All fields that are set must match it."""

    provider_id: ProviderId | None = None
    """Provider ID of the machine."""
    machine_name: Name | None = None
    """Name of the Machine, in the Cluster's namespace."""
    node_name: Name | None = None
    """Name of the node on this machine."""


class Release(InCluster, frozen=True, kw_only=True):
    """One Cluster, or with a provider ID one machine of it."""

    provider_id: ProviderId | None = None
    """Provider ID of the machine; without it, the key is released from the whole Cluster."""


class BannedNode(InCluster, frozen=True, kw_only=True):
    """A node whose certificates a ban ends."""

    node_name: Name
    """Name of the node."""


class Ban(Record, frozen=True, kw_only=True):
    """Why the key gets no certificate."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    """The reason of the ban."""
    by: _Operator = ""
    """Who banned it."""
    since: Time | None = None
    """When it was banned."""
    node: BannedNode | None = None
    """A node whose certificates end in addition to those of the last claim, which a restore may
    have taken away."""


class LiftedBan(Record, frozen=True, kw_only=True):
    """The last ban that an operator lifted."""

    at: Time
    """When the last ban was lifted."""
    by: _Operator = ""
    """Who lifted it."""
    certificates_too: bool = False
    """Whether the certificates that the ban ended are valid again."""


class EndorsementKeySpec(Record, frozen=True, kw_only=True):
    """Registrations and ban by operators, and the claim by the signer."""

    public_key: Annotated[
        str, msgspec.Meta(max_length=4096, pattern=r"^-----BEGIN PUBLIC KEY-----\n")
    ] = ""
    """The public key as PEM, for operators and tools. The name identifies the key."""
    registered_for: Annotated[
        tuple[
            Annotated[
                Registration,
                rules(
                    (
                        "has(self.providerID) || has(self.machineName) || has(self.nodeName)",
                        "at least one of providerID, machineName, nodeName must be set",
                    )
                ),
            ],
            ...,
        ],
        _MAX_ENTRIES,
        ATOMIC,
    ] = ()
    """Set by operators: the machines that have this TPM. Policies with trust Registered or
    RegisteredAndCertified require it."""
    released_from: Annotated[tuple[Release, ...], _MAX_ENTRIES, ATOMIC] = ()
    """By an operator: nodes that may not use this key anymore, because the hardware has a new
    owner. Their records and claims of this key do not count. It lets the next owner in, though a
    Machine of the former one still exists."""
    banned: Ban | None = None
    """Set by operators. While it is set, the key gets no certificate."""
    ban_lifted: LiftedBan | None = None
    """Set by operators with `kubectl attestation ban --lift`. It counts for bans from before."""
    term: Term = 1
    """Counts from 1, and the group of a client certificate has it. `kubectl attestation ban --lift`
    adds one, so that the certificates that the ban ended stay ended."""
    held_by: KeyHolder | None = None
    """Set by the signer: the one node that holds this key. It counts only while the node's
    AttestedNode names this key. If an operator removes it, another node can claim the key."""


class EndorsementKeyObject(EndorsementKeySpec, frozen=True, kw_only=True):
    """EndorsementKey is the endorsement key of one TPM.

    Where a platform certifies the attestation key and a quote names the virtual machine, it is that
    one. Its name is the SHA-256 of the canonical SubjectPublicKeyInfo in lower-case hex. The signer
    creates it, and writes it only under the resourceVersion that it read, so that one node and no
    other holds the key.
    """

    name: str
    resource_version: str
    uid: str = ""
    creation_timestamp: datetime | None = None

    @property
    def last_claimed(self) -> datetime | None:
        """Return the last claim, or the creation if that is later: `clusterctl move` does that."""
        claims = () if self.held_by is None else (self.held_by.since, self.held_by.last_claimed)
        return max(filter(None, (self.creation_timestamp, *claims)), default=None)

    @property
    def banned_since(self) -> datetime | None:
        """Return when the key was banned; `None` without a ban, or for a ban without a time."""
        return None if self.banned is None else self.banned.since

    @property
    def banned_node(self) -> BannedNode | None:
        """Return the node whose certificates its ban ends in addition."""
        return None if self.banned is None else self.banned.node

    def is_released_from(self, cluster: ClusterKey, provider_id: str) -> bool:
        """Return whether an operator released the key from these nodes."""
        return any(
            release.cluster == cluster and release.provider_id in {None, provider_id}
            for release in self.released_from
        )


DEFINITION: Final = Definition(
    resource=ENDORSEMENT_KEYS,
    kind=EndorsementKeyObject,
    spec=EndorsementKeySpec,
    short_name="ek",
    labels=MOVE_LABELS,
    columns=(
        Column(
            name="Held by",
            path=".spec.heldBy.nodeName",
            description="Name of the node that claimed this key last",
        ),
        Column(
            name="Cluster",
            path=".spec.heldBy.clusterName",
            description="Name of the Cluster of that node",
        ),
        # The first member that exists, so that a key of a node that has not joined shows its
        # machine.
        Column(
            name="Registered for",
            path=".spec.registeredFor[0]['nodeName','machineName','providerID']",
            description="Node name, Machine or provider ID of the first registration",
        ),
        Column(
            name="Banned",
            path=".spec.banned.reason",
            description="Why nothing is issued to this key",
        ),
        Column(name="Age", path=".metadata.creationTimestamp", type="date"),
        Column(
            name="Namespace",
            path=".spec.heldBy.clusterNamespace",
            description="Namespace of the Cluster",
            is_wide=True,
        ),
        Column(
            name="Basis",
            path=".spec.heldBy.basis",
            description="What the claim of the node is based on",
            is_wide=True,
        ),
        Column(
            name="Registered machine",
            path=".spec.registeredFor[0].machineName",
            description="Machine of the first registration",
            is_wide=True,
        ),
        Column(
            name="Registered provider ID",
            path=".spec.registeredFor[0].providerID",
            description="Provider ID of the first registration",
            is_wide=True,
        ),
    ),
    selectable=("heldBy.nodeName", "heldBy.clusterName", "heldBy.clusterNamespace"),
    rules=(
        (
            "self.metadata.name.matches('^[0-9a-f]{64}$')",
            "the name must be the SHA-256 of the canonical SubjectPublicKeyInfo in lower-case hex",
        ),
    ),
)


class _Object(Fields):
    metadata: Metadata
    spec: EndorsementKeySpec


def is_same_holder(one: KeyHolder, other: KeyHolder) -> bool:
    """Return whether two holders are one node; basis and times may differ."""
    return (one.cluster, one.node_name, one.provider_id) == (
        other.cluster,
        other.node_name,
        other.provider_id,
    )


def read_endorsement_key(source: Source) -> EndorsementKeyObject:
    """Read an EndorsementKey, without its PEM: caches hold many. Raises `ValueError`."""
    found = decode(source, _Object)
    return with_metadata(EndorsementKeyObject, found.spec.replace(public_key=""), found.metadata)


def encode_endorsement_key(
    name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
) -> dict[str, Any]:
    """Return the body of a new EndorsementKey, held by a node from now on."""
    holder = held_by.replace(since=now, last_claimed=now)
    spec = EndorsementKeySpec(public_key=public_key_pem, held_by=holder)
    return ENDORSEMENT_KEYS.manifest(
        metadata={"name": name, "labels": MOVE_LABELS}, spec=encode(spec)
    )


def replacement_metadata(resource_version: str) -> dict[str, Any]:
    """Return the metadata of a claim that replaces the claim of this resourceVersion.

    An API server gives no new resourceVersion to an object that a write does not change, and K1 to
    K3 need every write to change it. So each write has the version that it replaces in an
    annotation: no earlier write had the same.
    """
    annotations = {_WRITTEN_UNDER: resource_version}
    return {"resourceVersion": resource_version, "annotations": annotations}
