"""The Cluster: whether it has opted in (R0), is paused, and which names are its control plane's.

Source: the proposal's fields where a CRD has them (`spec.security.kubeletAuthentication`, and the
infrastructure cluster's `status.kubeletClientCertificateSigner`), else the annotation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from common.names import ANNOTATION_PREFIX
from signer.inventory.machine import Reference, read_reference
from signer.kube.fields import Json, annotations, get_path, get_str, get_strings, require_str
from signer.model import Cluster, ClusterKey

CLIENT_SIGNER_ANNOTATION: Final = ANNOTATION_PREFIX + "client-signer"
"""On a Cluster: its client signer; naming several, with commas, is a mistake that is told (R0)."""
_PAUSED_ANNOTATION: Final = "cluster.x-k8s.io/paused"
_DEFAULT_DOMAIN: Final = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObject:
    """What a Cluster object says."""

    key: ClusterKey
    uid: str
    paused: bool
    authentication: bool | None
    """`spec.security.kubeletAuthentication`; `None` where the CRD does not have it."""
    annotated_signers: frozenset[str]
    infrastructure: Reference | None
    hosts: frozenset[str]
    service_networks: tuple[IPv4Network | IPv6Network, ...]
    service_domain: str


def read_cluster(body: Json) -> ClusterObject:
    """Read a Cluster."""
    namespace = require_str(body, "metadata", "namespace")
    annotated = annotations(body)
    authentication = get_path(body, "spec", "security", "kubeletAuthentication")
    signers = annotated.get(CLIENT_SIGNER_ANNOTATION, "").split(",")
    return ClusterObject(
        key=ClusterKey(namespace=namespace, name=require_str(body, "metadata", "name")),
        uid=require_str(body, "metadata", "uid"),
        paused=get_path(body, "spec", "paused") is True or _PAUSED_ANNOTATION in annotated,
        authentication=authentication if isinstance(authentication, bool) else None,
        annotated_signers=frozenset(s.strip() for s in signers if s.strip()),
        infrastructure=read_reference(get_path(body, "spec", "infrastructureRef"), namespace),
        hosts=frozenset(_hosts(body)),
        service_networks=tuple(_service_networks(body)),
        service_domain=_service_domain(body),
    )


def client_signers(cluster: ClusterObject, named_by_infrastructure: str | None) -> frozenset[str]:
    """Return the client signers that the Cluster has opted in to; fields beat annotations."""
    if cluster.authentication is False:
        return frozenset()
    named = {named_by_infrastructure} - {None} if cluster.authentication else set()
    return cluster.annotated_signers | frozenset(name for name in named if name)


def build_cluster(
    cluster: ClusterObject,
    named_by_infrastructure: str | None,
    *,
    hosts: Iterable[str],
    auto_approve_bindings: Iterable[str],
) -> Cluster:
    """Put together what the Cluster and its workload cluster say."""
    return Cluster(
        key=cluster.key,
        uid=cluster.uid,
        paused=cluster.paused,
        client_signers=client_signers(cluster, named_by_infrastructure),
        control_plane_hosts=cluster.hosts | frozenset(hosts),
        service_networks=cluster.service_networks,
        service_domain=cluster.service_domain,
        auto_approve_bindings=frozenset(auto_approve_bindings),
    )


def _hosts(body: Json) -> Iterable[str]:
    endpoint = get_str(body, "spec", "controlPlaneEndpoint", "host")
    if endpoint is not None:
        yield endpoint
    service = "kubernetes.default.svc"
    yield from ("kubernetes", "kubernetes.default", service, f"{service}.{_service_domain(body)}")
    for network in _service_networks(body):
        # The first address of each block is the `kubernetes` service's.
        yield str(next(iter(network.hosts())))


def _service_domain(body: Json) -> str:
    return get_str(body, "spec", "clusterNetwork", "serviceDomain") or _DEFAULT_DOMAIN


def _service_networks(body: Json) -> Iterable[IPv4Network | IPv6Network]:
    for block in get_strings(body, "spec", "clusterNetwork", "services", "cidrBlocks"):
        yield ip_network(block, strict=False)
