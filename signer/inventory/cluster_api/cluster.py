"""Reads Clusters: whether one has opted in (R0) or is paused, and its control plane's names.

Source: the proposal's fields where a CRD has them (`spec.security.kubeletAuthentication`, and the
infrastructure cluster's `status.kubeletClientCertificateSigner`), else the annotation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

import msgspec

from common.names import ANNOTATION_PREFIX
from signer.host_names import HostName, canonical_name
from signer.inventory.cluster_api.references import Reference, ReferenceFields, build_reference
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.decode import (
    Fields,
    Labels,
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
from signer.kinds.resources import CAPI
from signer.kube.events import ObjectReference

CLIENT_SIGNER_ANNOTATION: Final = ANNOTATION_PREFIX + "client-signer"
"""On a Cluster: its client signer. Several, with commas, are a mistake that R0 reports."""
_PAUSED_ANNOTATION: Final = f"{CAPI}/paused"
_CLUSTER_VERSION: Final = f"{CAPI}/v1beta2"
BINDINGS_CONDITION: Final = "AutoApproveBindingsRemoved"
NODES_NOT_ATTESTED: Final = "NodesNotAttested"
"""Reason of this condition while the bindings stay for Nodes from before the opt-in."""
_DEFAULT_DOMAIN: Final = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCondition:
    """The condition of a Cluster about the bindings that approve without attestation (R0)."""

    removed: bool
    reason: str
    message: str
    since: str = field(default="", compare=False)
    """`lastTransitionTime`, as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObject:
    """A Cluster's fields."""

    key: ClusterKey
    uid: str
    created: datetime | None
    labels: Mapping[str, str]
    paused: bool
    authentication: bool | None
    """`spec.security.kubeletAuthentication`; `None` where the CRD does not have it."""
    annotated_signers: frozenset[str]
    infrastructure: Reference | None
    hosts: frozenset[HostName]
    service_networks: tuple[IPv4Network | IPv6Network, ...]
    service_domain: str
    bindings: ClusterCondition | None
    """As its status says; users of the Cluster may have written it, so no verdict reads it."""


class _Annotations(Fields):
    client_signer: MaybeText = msgspec.field(name=CLIENT_SIGNER_ANNOTATION, default=None)
    paused: MaybeText = msgspec.field(name=_PAUSED_ANNOTATION, default=None)


class _Meta(Fields):
    name: Name
    namespace: Namespace
    uid: Text
    creation_timestamp: Time | None = None
    labels: Labels = None
    annotations: _Annotations | None = None


class _Endpoint(Fields):
    host: MaybeText = None


class _Services(Fields):
    cidr_blocks: Texts = msgspec.field(name="cidrBlocks", default=None)


class _Network(Fields):
    service_domain: MaybeText = None
    services: _Services | None = None


class _Security(Fields):
    kubelet_authentication: bool | None = None


class _Spec(Fields):
    paused: bool | None = None
    control_plane_endpoint: _Endpoint | None = None
    cluster_network: _Network | None = None
    security: _Security | None = None
    infrastructure_ref: ReferenceFields | None = None


class _Condition(Fields):
    # Others' conditions must not make a Cluster unreadable, so nothing is limited.
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _NewStatus(Fields):
    conditions: list[_Condition] | None = None


class _Status(_NewStatus):
    v1beta2: _NewStatus | None = None


class _Cluster(Fields):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


def read_cluster(source: Source) -> ClusterObject:
    """Read a Cluster. Raises `ValueError`."""
    cluster = decode(source, _Cluster)
    metadata, spec = cluster.metadata, cluster.spec
    annotations = metadata.annotations or _Annotations()
    signers = (annotations.client_signer or "").split(",")
    return ClusterObject(
        key=ClusterKey(namespace=metadata.namespace, name=metadata.name),
        uid=metadata.uid,
        created=metadata.creation_timestamp,
        labels=metadata.labels or {},
        paused=bool(spec.paused) or annotations.paused is not None,
        authentication=spec.security.kubelet_authentication if spec.security else None,
        annotated_signers=frozenset(s.strip() for s in signers if s.strip()),
        infrastructure=build_reference(spec.infrastructure_ref, metadata.namespace),
        hosts=frozenset(map(canonical_name, _hosts(spec))),
        service_networks=tuple(_service_networks(spec)),
        service_domain=_service_domain(spec),
        bindings=_bindings_condition(cluster.status or _Status()),
    )


def client_signers(cluster: ClusterObject, named_by_infrastructure: str | None) -> frozenset[str]:
    """Return the client signers that the Cluster has opted in to; a false field opts it out."""
    if cluster.authentication is False:
        return frozenset()
    if cluster.authentication and named_by_infrastructure:
        return cluster.annotated_signers | {named_by_infrastructure}
    return cluster.annotated_signers


def build_cluster(
    cluster: ClusterObject,
    named_by_infrastructure: str | None,
    *,
    hosts: Iterable[HostName],
    auto_approve_bindings: Iterable[str],
    keeps_bindings: bool = False,
) -> Cluster:
    """Join the fields of a Cluster with those of its workload cluster."""
    return Cluster(
        key=cluster.key,
        uid=cluster.uid,
        paused=cluster.paused,
        client_signers=client_signers(cluster, named_by_infrastructure),
        control_plane_hosts=cluster.hosts | frozenset(hosts),
        service_networks=cluster.service_networks,
        service_domain=cluster.service_domain,
        auto_approve_bindings=frozenset(auto_approve_bindings),
        keeps_bindings=keeps_bindings,
    )


def _bindings_condition(status: _Status) -> ClusterCondition | None:
    for condition in (*(status.conditions or ()), *((status.v1beta2 or status).conditions or ())):
        if condition.type == BINDINGS_CONDITION:
            return ClusterCondition(
                removed=condition.status == "True",
                reason=condition.reason or "",
                message=condition.message or "",
                since=condition.last_transition_time or "",
            )
    return None


def _hosts(spec: _Spec) -> Iterable[str]:
    """Yield the names of the control plane endpoint and of the `kubernetes` service."""
    if spec.control_plane_endpoint is not None and spec.control_plane_endpoint.host:
        yield spec.control_plane_endpoint.host
    service = "kubernetes.default.svc"
    yield from ("kubernetes", "kubernetes.default", service, f"{service}.{_service_domain(spec)}")
    for network in _service_networks(spec):
        # The `kubernetes` service has the first address of each block.
        yield str(next(iter(network.hosts())))


def _service_domain(spec: _Spec) -> str:
    return (spec.cluster_network and spec.cluster_network.service_domain) or _DEFAULT_DOMAIN


def _service_networks(spec: _Spec) -> Iterable[IPv4Network | IPv6Network]:
    services = spec.cluster_network and spec.cluster_network.services
    for block in texts(services.cidr_blocks if services else None):
        yield ip_network(block, strict=False)


def cluster_reference(key: ClusterKey, uid: str) -> ObjectReference:
    """Return the reference of Events about a Cluster."""
    return ObjectReference(
        api_version=_CLUSTER_VERSION,
        kind="Cluster",
        namespace=key.namespace,
        name=key.name,
        uid=uid,
    )
