"""Machines, MachinePools, their infrastructure and bootstrap objects, in v1beta1 and v1beta2.

Source: Cluster API's api/core/v1beta1 and v1beta2; where the two differ, either is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from signer.inventory.key_annotation import KeyAnnotation, read_key_annotation
from signer.kube.fields import (
    Json,
    get_objects,
    get_path,
    get_str,
    get_strings,
    labels,
    require_str,
)
from signer.model import Address, ClusterKey, Machine

UNKNOWN_TOKEN: Final = ""
"""Instead of the ID of a token that should be there and is not known: no requester has it."""
KUBEADM_CONFIG: Final = ("bootstrap.cluster.x-k8s.io", "KubeadmConfig")
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.[a-z0-9]{16}")
_BOOTSTRAP_CONDITIONS: Final = frozenset({"BootstrapConfigReady", "BootstrapReady"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another object in the same namespace, of whatever version."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """Return the object's key in the cache of its kind."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineObject:
    """What a Machine says of itself; what it refers to is added where it is read."""

    cluster: ClusterKey
    name: str
    uid: str
    provider_id: str
    deleting: bool
    bootstrap_ready: bool
    addresses: tuple[Address, ...]
    node_ref: str | None
    labels: Mapping[str, str]
    registered_keys: KeyAnnotation
    infrastructure: Reference | None
    bootstrap: Reference | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolObject:
    """A MachinePool; its members may or may not have Machines of their own."""

    cluster: ClusterKey
    name: str
    uid: str
    provider_ids: tuple[str, ...]
    deleting: bool
    bootstrap_ready: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureObject:
    """What an infrastructure provider's object tells: key records, or a cluster's signer."""

    registered_keys: KeyAnnotation
    client_signer: str | None
    """`status.kubeletClientCertificateSigner` of an infrastructure cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapObject:
    """A KubeadmConfig: the ID of the bootstrap token that it owns, where it owns one."""

    token_id: str | None


def read_machine(body: Json) -> MachineObject:
    """Read a Machine."""
    namespace = require_str(body, "metadata", "namespace")
    return MachineObject(
        cluster=ClusterKey(namespace=namespace, name=require_str(body, "spec", "clusterName")),
        name=require_str(body, "metadata", "name"),
        uid=require_str(body, "metadata", "uid"),
        provider_id=get_str(body, "spec", "providerID") or "",
        deleting=get_path(body, "metadata", "deletionTimestamp") is not None,
        bootstrap_ready=_bootstrap_ready(body),
        addresses=tuple(
            Address(type=require_str(a, "type"), address=require_str(a, "address"))
            for a in get_objects(body, "status", "addresses")
        ),
        node_ref=get_str(body, "status", "nodeRef", "name"),
        labels=labels(body),
        registered_keys=read_key_annotation(body, "Machine annotation"),
        infrastructure=read_reference(get_path(body, "spec", "infrastructureRef"), namespace),
        bootstrap=read_reference(get_path(body, "spec", "bootstrap", "configRef"), namespace),
    )


def read_pool(body: Json) -> PoolObject:
    """Read a MachinePool."""
    namespace = require_str(body, "metadata", "namespace")
    return PoolObject(
        cluster=ClusterKey(namespace=namespace, name=require_str(body, "spec", "clusterName")),
        name=require_str(body, "metadata", "name"),
        uid=require_str(body, "metadata", "uid"),
        provider_ids=get_strings(body, "spec", "providerIDList"),
        deleting=get_path(body, "metadata", "deletionTimestamp") is not None,
        bootstrap_ready=_bootstrap_ready(body),
        labels=labels(body),
    )


def read_infrastructure(body: Json) -> InfrastructureObject:
    """Read an infrastructure provider's object of any kind."""
    return InfrastructureObject(
        registered_keys=read_key_annotation(body, f"{require_str(body, 'kind')} annotation"),
        client_signer=get_str(body, "status", "kubeletClientCertificateSigner"),
    )


def read_bootstrap(body: Json) -> BootstrapObject:
    """Read the ID of the token that the node joins with, and leave the secret where it is.

    `tlsBootstrapToken` comes first, as in kubeadm: it overrides the token of `bootstrapToken`, and
    file discovery has no other.
    """
    discovery = get_path(body, "spec", "joinConfiguration", "discovery")
    token = get_str(discovery, "tlsBootstrapToken") or get_str(discovery, "bootstrapToken", "token")
    if token is None:
        return BootstrapObject(token_id=None)
    matched = _TOKEN.fullmatch(token)
    return BootstrapObject(token_id=matched[1] if matched else UNKNOWN_TOKEN)


def read_reference(body: object, namespace: str) -> Reference | None:
    """Read a reference of v1beta2 (`apiGroup`) or v1beta1 (`apiVersion`), within a namespace."""
    kind, name = get_str(body, "kind"), get_str(body, "name")
    group = get_str(body, "apiGroup") or (get_str(body, "apiVersion") or "").partition("/")[0]
    if kind is None or name is None or not group:
        return None
    return Reference(group=group, kind=kind, namespace=namespace, name=name)


def is_kubeadm_config(reference: Reference) -> bool:
    """Tell whether a bootstrap configuration is of the one kind that owns tokens."""
    return (reference.group, reference.kind) == KUBEADM_CONFIG


def build_machine(
    machine: MachineObject,
    infrastructure: InfrastructureObject | None,
    bootstrap: BootstrapObject | None,
) -> Machine:
    """Put together what a Machine and the objects that it refers to say.

    A reference to nothing is no statement: neither that there is no record, nor that there is no
    token.
    """
    own, infra = machine.registered_keys, KeyAnnotation()
    if infrastructure is not None:
        infra = infrastructure.registered_keys
    elif machine.infrastructure is not None:
        infra = KeyAnnotation(error="the infrastructure object is not there")
    return Machine(
        name=machine.name,
        uid=machine.uid,
        provider_id=machine.provider_id,
        deleting=machine.deleting,
        bootstrap_ready=machine.bootstrap_ready,
        addresses=machine.addresses,
        node_ref=machine.node_ref,
        bootstrap_token_id=_token_id(machine, bootstrap),
        is_pool_member=False,
        labels=machine.labels,
        registered_keys=own.keys + infra.keys,
        registered_keys_error=own.error or infra.error,
    )


def build_pool_member(pool: PoolObject, provider_id: str) -> Machine:
    """Return a pool's member that has no Machine: all that is known of it is its provider ID."""
    return Machine(
        name=pool.name,
        uid=pool.uid,
        provider_id=provider_id,
        deleting=pool.deleting,
        bootstrap_ready=pool.bootstrap_ready,
        addresses=(),
        node_ref=None,
        bootstrap_token_id=None,
        is_pool_member=True,
        labels=pool.labels,
        registered_keys=(),
        registered_keys_error=None,
    )


def _token_id(machine: MachineObject, bootstrap: BootstrapObject | None) -> str | None:
    if machine.bootstrap is None or not is_kubeadm_config(machine.bootstrap):
        return None
    return UNKNOWN_TOKEN if bootstrap is None else bootstrap.token_id


def _bootstrap_ready(body: Json) -> bool:
    if get_path(body, "status", "initialization", "bootstrapDataSecretCreated") is True:
        return True
    if get_path(body, "status", "bootstrapReady") is True:
        return True
    return any(
        condition.get("type") in _BOOTSTRAP_CONDITIONS and condition.get("status") == "True"
        for condition in get_objects(body, "status", "conditions")
    )
