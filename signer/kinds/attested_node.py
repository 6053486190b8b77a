"""AttestedNodes: which TPM attested for a node, and what it measured.

Source: docs/protocol.md section 2, and the CRD in packaging/signer/crds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Final

import msgspec

from common.errors import NodeNameInvalid
from common.formats.strict_json import format_time
from common.names import API_GROUP, API_VERSION
from common.node_identity import require_dns_name
from common.requests.binding import encode_fields, sha256
from signer.kinds.cluster import CLUSTER_NAME_LABEL, ClusterKey, shared_cluster_key
from signer.kinds.decode import (
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
from signer.kinds.endorsement_key import MOVE_LABELS, Term, TrustBasis, replacement_metadata
from signer.kinds.resources import Resource

ATTESTED_NODES: Final = Resource(API_GROUP, API_VERSION, "AttestedNode", "attestednodes")
_MAX_MESSAGE: Final = 1024


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
    """Values by bank and PCR, of the quoted PCRs for which a policy can have lists."""
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


class _Meta(Fields):
    name: Name
    resource_version: Text
    namespace: Namespace


class _Boot(Fields):
    reset_count: int | None = None
    restart_count: int | None = None
    firmware_version: MaybeText = None


_Values = Annotated[dict[str, Text], msgspec.Meta(max_length=MAX_ENTRIES)]


class MeasuredFields(Fields):
    """`measured` of an AttestedNode and of its last refusal."""

    pcrs: Annotated[dict[str, _Values], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None
    firmware: MaybeText = None
    secure_boot: bool | None = None
    platform_keys: Texts = None
    signature_databases: Texts = None
    boot_loaders: Texts = None


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
    term: Term = 0
    since: Time | None = None
    others_end_at: Time | None = None


class _Node(Fields):
    metadata: _Meta
    spec: _NodeSpec


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
            "the name of an AttestedNode must be that of its node and Cluster: delete the object"
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


def read_measured(fields: MeasuredFields | None) -> MeasuredValues | None:
    """Return the values, `None` if there are none.

    The signer writes only a printable version. A tenant wrote any other one, and an operator would
    see its lines in a question. So it is left out.
    """
    if fields is None:
        return None
    firmware = fields.firmware or ""
    return MeasuredValues(
        pcrs=fields.pcrs or {},
        firmware=firmware if firmware.isprintable() else "",
        secure_boot=fields.secure_boot,
        platform_keys=texts(fields.platform_keys),
        signature_databases=texts(fields.signature_databases),
        boot_loaders=texts(fields.boot_loaders),
    )


def encode_measured(values: MeasuredValues) -> dict[str, Any]:
    """Return `measured`, without what is not known."""
    fields = {
        "pcrs": {bank: dict(by_index) for bank, by_index in values.pcrs.items()},
        "firmware": values.firmware,
        "secureBoot": values.secure_boot,
        "platformKeys": list(values.platform_keys),
        "signatureDatabases": list(values.signature_databases),
        "bootLoaders": list(values.boot_loaders),
    }
    return {key: value for key, value in fields.items() if value is False or value}


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
