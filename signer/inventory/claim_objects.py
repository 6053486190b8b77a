"""The claims as objects: EndorsementKey and AttestedNode, read and written.

Source: docs/protocol.md section 2, and the CRDs in packaging/signer/crds.
"""

from datetime import UTC, datetime
from typing import Any, Final

from common.names import ANNOTATION_PREFIX, API_GROUP, API_VERSION
from signer.kube.fields import Json, get_objects, get_path, get_str, require_str, require_time
from signer.model import (
    AttestedNodeObject,
    BootCounters,
    ClusterKey,
    EndorsementKeyObject,
    KeyHolder,
    Registration,
    Release,
    TrustBasis,
    attested_node_name,
)

_API: Final = f"{API_GROUP}/{API_VERSION}"
_MOVE_LABELS: Final = {"clusterctl.cluster.x-k8s.io/move": ""}
"""With these `clusterctl move` takes an object along that has no owner."""
CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
_WRITTEN_UNDER: Final = ANNOTATION_PREFIX + "written-under"


def read_endorsement_key(body: Json) -> EndorsementKeyObject:
    """Read an EndorsementKey."""
    held_by = get_path(body, "spec", "heldBy")
    return EndorsementKeyObject(
        name=require_str(body, "metadata", "name"),
        resource_version=require_str(body, "metadata", "resourceVersion"),
        registered_for=tuple(_registration(r) for r in get_objects(body, "spec", "registeredFor")),
        released_from=tuple(
            Release(cluster=_cluster(r), provider_id=get_str(r, "providerID"))
            for r in get_objects(body, "spec", "releasedFrom")
        ),
        banned=get_path(body, "spec", "banned") is not None,
        held_by=None if held_by is None else _holder(held_by),
        uid=get_str(body, "metadata", "uid") or "",
        last_claimed=_last_claimed(body),
    )


def read_attested_node(body: Json) -> AttestedNodeObject:
    """Read an AttestedNode.

    Raises `ValueError` when its name is not that of the node that it speaks of: whoever could
    create such an object could claim one node's name for another.
    """
    namespace, cluster_name = (
        require_str(body, "metadata", "namespace"),
        require_str(body, "spec", "clusterName"),
    )
    cluster = ClusterKey(namespace=namespace, name=cluster_name)
    node_name = require_str(body, "spec", "nodeName")
    name = require_str(body, "metadata", "name")
    if name != attested_node_name(cluster, node_name):
        raise ValueError("an AttestedNode has another name than its node gives it")
    return AttestedNodeObject(
        name=name,
        resource_version=require_str(body, "metadata", "resourceVersion"),
        cluster=cluster,
        node_name=node_name,
        provider_id=require_str(body, "spec", "providerID"),
        machine_name=get_str(body, "spec", "machineName") or "",
        machine_uid=get_str(body, "spec", "machineUID") or "",
        endorsement_key=require_str(body, "spec", "endorsementKey"),
        not_after=require_time(body, "spec", "notAfter"),
        last_attested=require_time(body, "spec", "lastAttested"),
        boot=_boot(get_path(body, "spec", "boot")),
    )


def encode_endorsement_key(
    name: str, public_key_pem: str, held_by: KeyHolder, now: datetime
) -> dict[str, Any]:
    """Write the EndorsementKey of a key that was not known before."""
    return {
        "apiVersion": _API,
        "kind": "EndorsementKey",
        "metadata": {"name": name, "labels": _MOVE_LABELS},
        "spec": {"publicKey": public_key_pem, "heldBy": encode_holder(held_by, now)},
    }


def encode_holder(held_by: KeyHolder, since: datetime) -> dict[str, Any]:
    """Write `spec.heldBy`."""
    return {
        "clusterNamespace": held_by.cluster.namespace,
        "clusterName": held_by.cluster.name,
        "nodeName": held_by.node_name,
        "providerID": held_by.provider_id,
        "basis": held_by.basis.value,
        "since": _instant(since),
    }


def replacement_metadata(resource_version: str) -> dict[str, Any]:
    """Write the metadata of a claim that replaces the one of this resourceVersion.

    An API server gives no new resourceVersion to an object that a write leaves as it was, and K1 to
    K3 rest on every write being seen: so each one says what it replaces, which no other did.
    """
    annotations = {_WRITTEN_UNDER: resource_version}
    return {"resourceVersion": resource_version, "annotations": annotations}


def encode_attested_node(wanted: AttestedNodeObject, resource_version: str) -> dict[str, Any]:
    """Write an AttestedNode; `resource_version` is empty for one that is to be created."""
    labels = {**_MOVE_LABELS, CLUSTER_NAME_LABEL: wanted.cluster.name}
    metadata: dict[str, Any] = {
        "name": wanted.name,
        "namespace": wanted.cluster.namespace,
        "labels": labels,
    }
    spec: dict[str, Any] = {
        "clusterName": wanted.cluster.name,
        "nodeName": wanted.node_name,
        "providerID": wanted.provider_id,
        "endorsementKey": wanted.endorsement_key,
        "notAfter": _instant(wanted.not_after),
        "lastAttested": _instant(wanted.last_attested),
    }
    if wanted.machine_name:
        spec["machineName"] = wanted.machine_name
    if wanted.machine_uid:
        spec["machineUID"] = wanted.machine_uid
    if wanted.boot is not None:
        spec["boot"] = {
            "resetCount": wanted.boot.reset_count,
            "restartCount": wanted.boot.restart_count,
            "firmwareVersion": f"{wanted.boot.firmware_version:#018x}",
        }
    if resource_version:
        metadata |= replacement_metadata(resource_version)
    return {"apiVersion": _API, "kind": "AttestedNode", "metadata": metadata, "spec": spec}


def _registration(body: Json) -> Registration:
    return Registration(
        cluster=_cluster(body),
        provider_id=get_str(body, "providerID"),
        machine_name=get_str(body, "machineName"),
        node_name=get_str(body, "nodeName"),
    )


def _holder(body: object) -> KeyHolder:
    return KeyHolder(
        cluster=_cluster(body),
        node_name=require_str(body, "nodeName"),
        provider_id=require_str(body, "providerID"),
        basis=TrustBasis(require_str(body, "basis")),
    )


def _last_claimed(body: Json) -> datetime | None:
    """Return the later of `heldBy.since` and the creation: `clusterctl move` creates it again."""
    paths = (("metadata", "creationTimestamp"), ("spec", "heldBy", "since"))
    times = [require_time(body, *path) for path in paths if get_path(body, *path) is not None]
    return max(times, default=None)


def _cluster(body: object) -> ClusterKey:
    return ClusterKey(
        namespace=require_str(body, "clusterNamespace"), name=require_str(body, "clusterName")
    )


def _boot(body: object) -> BootCounters | None:
    reset, restart = get_path(body, "resetCount"), get_path(body, "restartCount")
    firmware = get_str(body, "firmwareVersion")
    if not isinstance(reset, int) or not isinstance(restart, int) or firmware is None:
        return None
    try:
        version = int(firmware, 0)
    except ValueError:
        return None
    return BootCounters(reset_count=reset, restart_count=restart, firmware_version=version)


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
