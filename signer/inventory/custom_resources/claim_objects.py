"""Reads and encodes the objects of claims: EndorsementKey and AttestedNode.

Source: docs/protocol.md section 2, and the CRDs in packaging/signer/crds.
"""

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from common.formats.strict_json import format_time
from common.names import ANNOTATION_PREFIX
from common.node_identity import MAX_TERM
from signer.inventory.cluster_api.cluster_secret import CLUSTER_NAME_LABEL
from signer.inventory.custom_resources.measured_fields import (
    MeasuredFields,
    encode_measured,
    read_measured,
)
from signer.inventory.kinds import ATTESTED_NODES, ENDORSEMENT_KEYS
from signer.kube.decode import (
    MAX_ENTRIES,
    Fields,
    MaybeName,
    MaybeText,
    Name,
    Namespace,
    Source,
    Text,
    Texts,
    Time,
    decode,
    texts,
)
from signer.model import (
    AttestedNodeObject,
    Ban,
    BootCounters,
    BootState,
    EndorsementKeyObject,
    KeyHolder,
    LiftedBan,
    Refusal,
    Registration,
    Release,
    TrustBasis,
    attested_node_name,
    shared_cluster_key,
)

MOVE_LABELS: Final = {"clusterctl.cluster.x-k8s.io/move": ""}
"""With this label `clusterctl move` moves an object that has no owner."""
_MAX_MESSAGE: Final = 1024
_WRITTEN_UNDER: Final = ANNOTATION_PREFIX + "written-under"


_Term = Annotated[int, msgspec.Meta(ge=0, le=MAX_TERM)]


class _Meta(Fields):
    name: Name
    resource_version: Text
    uid: MaybeText = None
    creation_timestamp: Time | None = None


class _NamespacedMeta(_Meta, kw_only=True):
    namespace: Namespace


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
    term: _Term = 1
    ban_lifted: _LiftedBan | None = None


class _Key(Fields):
    metadata: _Meta
    spec: _KeySpec = msgspec.field(default_factory=_KeySpec)


class _Boot(Fields):
    reset_count: int | None = None
    restart_count: int | None = None
    firmware_version: MaybeText = None


class _Refusal(Fields):
    reason: Text
    time: Time
    request: Name
    message: MaybeText = None
    measured: MeasuredFields | None = None


class _NodeSpec(Fields):
    cluster_name: Name
    node_name: Name
    endorsement_key: Text
    not_after: Time
    last_attested: Time
    provider_id: Text = msgspec.field(name="providerID")
    machine_name: MaybeName = None
    machine_uid: MaybeText = msgspec.field(name="machineUID", default=None)
    credential_ids: Texts = msgspec.field(name="credentialIDs", default=None)
    boot: _Boot | None = None
    policy: MaybeText = None
    basis: MaybeText = None
    boot_state: MaybeText = None
    measured: MeasuredFields | None = None
    renewal_deadline: Time | None = None
    last_refusal: _Refusal | None = None
    term: _Term = 0
    since: Time | None = None
    others_end_at: Time | None = None


class _Node(Fields):
    metadata: _NamespacedMeta
    spec: _NodeSpec


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


def read_attested_node(source: Source) -> AttestedNodeObject:
    """Read an AttestedNode.

    Raises `ValueError`, also when its name is not the one that its `Cluster` and node give it:
    otherwise a writer of such objects could claim one node's name for another node.
    """
    node = decode(source, _Node)
    metadata, spec = node.metadata, node.spec
    cluster = shared_cluster_key(metadata.namespace, spec.cluster_name)
    if metadata.name != attested_node_name(cluster, spec.node_name):
        raise ValueError(
            "the name of an AttestedNode must be that of its node and Cluster: delete the object, "
            "which may be of a build before 0.1.0"
        )
    return AttestedNodeObject(
        name=metadata.name,
        resource_version=metadata.resource_version,
        cluster=cluster,
        node_name=spec.node_name,
        provider_id=spec.provider_id,
        machine_name=spec.machine_name or "",
        machine_uid=spec.machine_uid or "",
        endorsement_key=spec.endorsement_key,
        credential_ids=texts(spec.credential_ids),
        not_after=spec.not_after,
        last_attested=spec.last_attested,
        boot=_boot(spec.boot),
        policy=spec.policy or "",
        basis=next((b for b in TrustBasis if b.value == spec.basis), None),
        boot_state=next((s for s in BootState if s.value == spec.boot_state), None),
        measured=read_measured(spec.measured),
        renewal_deadline=spec.renewal_deadline,
        last_refusal=None if spec.last_refusal is None else _refusal(spec.last_refusal),
        term=spec.term,
        since=spec.since,
        others_end_at=spec.others_end_at,
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


def encode_attested_node(node: AttestedNodeObject, resource_version: str) -> dict[str, Any]:
    """Return the body of an AttestedNode; `resource_version` is empty for a new one."""
    labels = {**MOVE_LABELS, CLUSTER_NAME_LABEL: node.cluster.name}
    metadata: dict[str, Any] = {
        "name": node.name,
        "namespace": node.cluster.namespace,
        "labels": labels,
    }
    spec: dict[str, Any] = {
        "clusterName": node.cluster.name,
        "nodeName": node.node_name,
        "providerID": node.provider_id,
        "endorsementKey": node.endorsement_key,
        "notAfter": format_time(node.not_after),
        "lastAttested": format_time(node.last_attested),
    }
    optional = {
        "machineName": node.machine_name,
        "machineUID": node.machine_uid,
        "credentialIDs": list(node.credential_ids),
        "boot": node.boot and _encode_boot(node.boot),
        "policy": node.policy,
        "basis": node.basis and node.basis.value,
        "bootState": node.boot_state and node.boot_state.value,
        "measured": node.measured and encode_measured(node.measured),
        "renewalDeadline": node.renewal_deadline and format_time(node.renewal_deadline),
        "lastRefusal": node.last_refusal and _encode_refusal(node.last_refusal),
        "term": node.term,
        "since": node.since and format_time(node.since),
        "othersEndAt": node.others_end_at and format_time(node.others_end_at),
    }
    spec |= {key: value for key, value in optional.items() if value}
    if resource_version:
        metadata |= replacement_metadata(resource_version)
    return ATTESTED_NODES.manifest(metadata=metadata, spec=spec)


def _encode_boot(boot: BootCounters) -> dict[str, Any]:
    return {
        "resetCount": boot.reset_count,
        "restartCount": boot.restart_count,
        "firmwareVersion": f"{boot.firmware_version:#018x}",
    }


def _encode_refusal(refusal: Refusal) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "reason": refusal.reason,
        "message": refusal.message[:_MAX_MESSAGE],
        "time": format_time(refusal.time),
        "request": refusal.request,
    }
    if refusal.measured is not None:
        fields["measured"] = encode_measured(refusal.measured)
    return fields


def _refusal(fields: _Refusal) -> Refusal:
    return Refusal(
        reason=fields.reason,
        message=fields.message or "",
        time=fields.time,
        request=fields.request,
        measured=read_measured(fields.measured),
    )


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


def _boot(fields: _Boot | None) -> BootCounters | None:
    """Return the boot counters, `None` unless all are there."""
    if fields is None or fields.reset_count is None or fields.restart_count is None:
        return None
    try:
        version = int(fields.firmware_version or "", 0)
    except ValueError:
        return None
    return BootCounters(
        reset_count=fields.reset_count,
        restart_count=fields.restart_count,
        firmware_version=version,
    )
