"""EndorsementKeys: which node holds a TPM, and what operators said about it.

Source: docs/protocol.md section 2, and the CRD in packaging/signer/crds.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final

import msgspec

from common.formats.strict_json import format_time
from common.names import ANNOTATION_PREFIX, API_GROUP, API_VERSION
from common.node_identity import MAX_TERM
from signer.kinds.cluster import ClusterKey, shared_cluster_key
from signer.kinds.decode import (
    MAX_ENTRIES,
    Fields,
    MaybeName,
    MaybeText,
    Name,
    Namespace,
    Source,
    Text,
    Time,
    decode,
)
from signer.kinds.resources import Resource

ENDORSEMENT_KEYS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKey", "endorsementkeys", namespaced=False
)

MOVE_LABELS: Final = {"clusterctl.cluster.x-k8s.io/move": ""}
"""With this label `clusterctl move` moves an object that has no owner."""
_WRITTEN_UNDER: Final = ANNOTATION_PREFIX + "written-under"


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


Term = Annotated[int, msgspec.Meta(ge=0, le=MAX_TERM)]


class _Meta(Fields):
    name: Name
    resource_version: Text
    uid: MaybeText = None
    creation_timestamp: Time | None = None


class _Registration(Fields):
    cluster_namespace: Namespace
    cluster_name: Name
    provider_id: MaybeText = msgspec.field(name="providerID", default=None)
    machine_name: MaybeName = None
    node_name: MaybeName = None


class _Release(Fields):
    cluster_namespace: Namespace
    cluster_name: Name
    provider_id: MaybeText = msgspec.field(name="providerID", default=None)


class _Holder(Fields):
    cluster_namespace: Namespace
    cluster_name: Name
    node_name: Name
    provider_id: Text = msgspec.field(name="providerID")
    basis: TrustBasis
    since: Time | None = None
    last_claimed: Time | None = None


class _BannedNode(Fields):
    cluster_namespace: Text
    cluster_name: Text
    node_name: Text


class _Ban(Fields):
    since: Time | None = None
    node: _BannedNode | None = None


class _LiftedBan(Fields):
    at: Time
    certificates_too: bool = False


class _KeySpec(Fields):
    registered_for: Annotated[list[_Registration], msgspec.Meta(max_length=MAX_ENTRIES)] | None = (
        None
    )
    released_from: Annotated[list[_Release], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None
    banned: Any = None
    """A ban is effective with any content."""
    held_by: _Holder | None = None
    term: Term = 1
    ban_lifted: _LiftedBan | None = None


class _Key(Fields):
    metadata: _Meta
    spec: _KeySpec = msgspec.field(default_factory=_KeySpec)


def read_endorsement_key(source: Source) -> EndorsementKeyObject:
    """Read an EndorsementKey. Raises `ValueError`."""
    key = decode(source, _Key)
    return EndorsementKeyObject(
        name=key.metadata.name,
        resource_version=key.metadata.resource_version,
        registered_for=tuple(map(_registration, key.spec.registered_for or ())),
        released_from=tuple(map(_release, key.spec.released_from or ())),
        banned=key.spec.banned is not None,
        held_by=None if key.spec.held_by is None else _holder(key.spec.held_by),
        uid=key.metadata.uid or "",
        held_since=None if key.spec.held_by is None else key.spec.held_by.since,
        last_claimed=_last_claimed(key),
        term=key.spec.term,
        ban=_ban(key.spec.banned),
        ban_lifted=_ban_lifted(key.spec.ban_lifted),
    )


def encode_endorsement_key(
    name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
) -> dict[str, Any]:
    """Return the body of a new EndorsementKey, held by a node."""
    return ENDORSEMENT_KEYS.manifest(
        metadata={"name": name, "labels": MOVE_LABELS},
        spec={"publicKey": public_key_pem, "heldBy": encode_holder(held_by, since=now, now=now)},
    )


def encode_holder(held_by: KeyHolder, *, since: datetime, now: datetime) -> dict[str, Any]:
    """Return `spec.heldBy` of a node that first claimed the key at `since`."""
    return {
        "clusterNamespace": held_by.cluster.namespace,
        "clusterName": held_by.cluster.name,
        "nodeName": held_by.node_name,
        "providerID": held_by.provider_id,
        "basis": held_by.basis.value,
        "since": format_time(since),
        "lastClaimed": format_time(now),
    }


def replacement_metadata(resource_version: str) -> dict[str, Any]:
    """Return the metadata of a claim that replaces the claim of this resourceVersion.

    An API server gives no new resourceVersion to an object that a write does not change, and K1 to
    K3 need every write to change it. So each write has the version that it replaces in an
    annotation: no earlier write had the same.
    """
    annotations = {_WRITTEN_UNDER: resource_version}
    return {"resourceVersion": resource_version, "annotations": annotations}


def _ban(banned: Any) -> Ban:  # noqa: ANN401 # JSON
    """Return what can be read of a ban, which any content makes effective."""
    if banned is None:
        return Ban()
    try:
        fields = decode(banned, _Ban)
    except ValueError:
        return Ban()
    node = fields.node
    if node is None:
        return Ban(since=fields.since)
    cluster = shared_cluster_key(node.cluster_namespace, node.cluster_name)
    return Ban(since=fields.since, node=(cluster, node.node_name))


def _ban_lifted(fields: _LiftedBan | None) -> LiftedBan | None:
    if fields is None:
        return None
    return LiftedBan(at=fields.at, certificates_too=fields.certificates_too)


def _registration(fields: _Registration) -> Registration:
    return Registration(
        cluster=shared_cluster_key(fields.cluster_namespace, fields.cluster_name),
        # An empty text registers nothing, and must not match a Machine without a provider ID.
        provider_id=fields.provider_id or None,
        machine_name=fields.machine_name or None,
        node_name=fields.node_name or None,
    )


def _holder(fields: _Holder) -> KeyHolder:
    return KeyHolder(
        cluster=shared_cluster_key(fields.cluster_namespace, fields.cluster_name),
        node_name=fields.node_name,
        provider_id=fields.provider_id,
        basis=fields.basis,
    )


def _release(fields: _Release) -> Release:
    cluster = shared_cluster_key(fields.cluster_namespace, fields.cluster_name)
    return Release(cluster=cluster, provider_id=fields.provider_id)


def _last_claimed(key: _Key) -> datetime | None:
    """Return the last claim, or the creation if that is later: `clusterctl move` creates again."""
    holder = key.spec.held_by
    claims = () if holder is None else (holder.since, holder.last_claimed)
    return max(filter(None, (key.metadata.creation_timestamp, *claims)), default=None)
