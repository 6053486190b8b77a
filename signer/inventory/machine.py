"""Machines, MachinePools, their infrastructure and bootstrap objects, in v1beta1 and v1beta2.

Source: Cluster API's api/core/v1beta1 and v1beta2. Where they differ, both forms are read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import msgspec

from common.names import ENDORSEMENT_KEY_ANNOTATION
from signer.inventory.key_annotation import NO_ANNOTATION, KeyAnnotation, read_key_annotation
from signer.kube.decode import (
    MAX_ENTRIES,
    Fields,
    Labels,
    MaybeText,
    Source,
    Text,
    Time,
    decode,
    texts,
)
from signer.model import Address, ClusterKey, Machine

UNKNOWN_TOKEN: Final = ""
"""In place of the ID of a token that should exist and is not known. No requester has this ID."""
KUBEADM_CONFIG: Final = ("bootstrap.cluster.x-k8s.io", "KubeadmConfig")
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.[a-z0-9]{16}")
_MAX_ANNOTATION: Final = 256 << 10
"""Characters: Kubernetes allows 256 KiB for all annotations of an object."""
_MAX_MEMBERS: Final = 20_000
"""Provider IDs of one MachinePool."""
_BOOTSTRAP_CONDITIONS: Final = frozenset({"BootstrapConfigReady", "BootstrapReady"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another object in the same namespace, in any version of its API group."""

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
    """A Machine's own fields; `build_machine` adds those of the objects that it refers to."""

    cluster: ClusterKey
    name: str
    uid: str
    provider_id: str
    created: datetime | None
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
    """A MachinePool. Some providers make a Machine for each member, others do not."""

    cluster: ClusterKey
    name: str
    uid: str
    provider_ids: tuple[str, ...]
    deleting: bool
    bootstrap_ready: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureObject:
    """Fields of an infrastructure provider's object: registered keys, or a cluster's signer."""

    registered_keys: KeyAnnotation
    client_signer: str | None
    """`status.kubeletClientCertificateSigner` of an infrastructure cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapObject:
    """A KubeadmConfig: the ID of its bootstrap token, `None` where it has no token."""

    token_id: str | None


class ReferenceFields(Fields):
    """A reference of v1beta2 (`apiGroup`) or v1beta1 (`apiVersion`)."""

    kind: MaybeText = None
    name: MaybeText = None
    api_group: MaybeText = None
    api_version: MaybeText = None


class _Annotations(Fields):
    endorsement_key: Annotated[str, msgspec.Meta(max_length=_MAX_ANNOTATION)] | None = (
        msgspec.field(name=ENDORSEMENT_KEY_ANNOTATION, default=None)
    )


class _Meta(Fields):
    name: Text
    namespace: Text
    uid: Text
    creation_timestamp: Time | None = None
    deletion_timestamp: MaybeText = None
    labels: Labels = None
    annotations: _Annotations | None = None


class _Bootstrap(Fields):
    config_ref: ReferenceFields | None = None


class _MachineSpec(Fields):
    cluster_name: Text
    provider_id: MaybeText = msgspec.field(name="providerID", default=None)
    infrastructure_ref: ReferenceFields | None = None
    bootstrap: _Bootstrap | None = None


class _Address(Fields):
    type: Text
    address: Text


class _NodeRef(Fields):
    name: MaybeText = None


class _Initialization(Fields):
    bootstrap_data_secret_created: bool | None = None


class _Condition(Fields):
    type: MaybeText = None
    status: MaybeText = None


class _BootstrapStatus(Fields):
    initialization: _Initialization | None = None
    bootstrap_ready: bool | None = None
    conditions: Annotated[list[_Condition], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None

    @property
    def is_ready(self) -> bool:
        """Return whether the bootstrap data are there, by the field of any version."""
        created = self.initialization and self.initialization.bootstrap_data_secret_created
        return bool(created or self.bootstrap_ready) or any(
            condition.type in _BOOTSTRAP_CONDITIONS and condition.status == "True"
            for condition in self.conditions or ()
        )


class _MachineStatus(_BootstrapStatus):
    addresses: Annotated[list[_Address], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None
    node_ref: _NodeRef | None = None


class _Machine(Fields):
    metadata: _Meta
    spec: _MachineSpec
    status: _MachineStatus | None = None


class _PoolSpec(Fields):
    cluster_name: Text
    provider_ids: Annotated[list[MaybeText], msgspec.Meta(max_length=_MAX_MEMBERS)] | None = (
        msgspec.field(name="providerIDList", default=None)
    )


class _Pool(Fields):
    metadata: _Meta
    spec: _PoolSpec
    status: _BootstrapStatus | None = None


class _InfrastructureMeta(Fields):
    annotations: _Annotations | None = None


class _InfrastructureStatus(Fields):
    client_signer: MaybeText = msgspec.field(name="kubeletClientCertificateSigner", default=None)


class _Infrastructure(Fields):
    kind: Text
    metadata: _InfrastructureMeta
    status: _InfrastructureStatus | None = None


class _TokenDiscovery(Fields):
    token: MaybeText = None


class _Discovery(Fields):
    bootstrap_token: _TokenDiscovery | None = None
    tls_bootstrap_token: MaybeText = None


class _JoinConfiguration(Fields):
    discovery: _Discovery | None = None


class _ConfigSpec(Fields):
    join_configuration: _JoinConfiguration | None = None


class _Config(Fields):
    spec: _ConfigSpec | None = None


def read_machine(source: Source) -> MachineObject:
    """Read a Machine. Raises `ValueError`."""
    machine = decode(source, _Machine)
    metadata, spec = machine.metadata, machine.spec
    status = machine.status or _MachineStatus()
    bootstrap = spec.bootstrap or _Bootstrap()
    return MachineObject(
        cluster=ClusterKey(namespace=metadata.namespace, name=spec.cluster_name),
        name=metadata.name,
        uid=metadata.uid,
        provider_id=spec.provider_id or "",
        created=metadata.creation_timestamp,
        deleting=metadata.deletion_timestamp is not None,
        bootstrap_ready=status.is_ready,
        addresses=tuple(Address(type=a.type, address=a.address) for a in status.addresses or ()),
        node_ref=(status.node_ref.name or None) if status.node_ref else None,
        labels=metadata.labels or {},
        registered_keys=_registered_keys(metadata.annotations, "Machine annotation"),
        infrastructure=build_reference(spec.infrastructure_ref, metadata.namespace),
        bootstrap=build_reference(bootstrap.config_ref, metadata.namespace),
    )


def read_pool(source: Source) -> PoolObject:
    """Read a MachinePool. Raises `ValueError`."""
    pool = decode(source, _Pool)
    metadata, spec = pool.metadata, pool.spec
    return PoolObject(
        cluster=ClusterKey(namespace=metadata.namespace, name=spec.cluster_name),
        name=metadata.name,
        uid=metadata.uid,
        provider_ids=texts(spec.provider_ids),
        deleting=metadata.deletion_timestamp is not None,
        bootstrap_ready=pool.status is not None and pool.status.is_ready,
        labels=metadata.labels or {},
    )


def read_infrastructure(source: Source) -> InfrastructureObject:
    """Read an infrastructure provider's object of any kind. Raises `ValueError`."""
    infrastructure = decode(source, _Infrastructure)
    annotations, status = infrastructure.metadata.annotations, infrastructure.status
    return InfrastructureObject(
        registered_keys=_registered_keys(annotations, f"{infrastructure.kind} annotation"),
        client_signer=(status.client_signer or None) if status else None,
    )


def read_bootstrap(source: Source) -> BootstrapObject:
    """Read the ID of a KubeadmConfig's bootstrap token, but not the token's secret part.

    `tlsBootstrapToken` comes first, as in kubeadm: it overrides the token of `bootstrapToken`, and
    file discovery has no other. Raises `ValueError`.
    """
    spec = decode(source, _Config).spec
    join = spec and spec.join_configuration
    discovery = (join and join.discovery) or _Discovery()
    bootstrap_token = discovery.bootstrap_token
    token = discovery.tls_bootstrap_token or (bootstrap_token and bootstrap_token.token)
    if not token:
        return BootstrapObject(token_id=None)
    matched = _TOKEN.fullmatch(token)
    return BootstrapObject(token_id=matched[1] if matched else UNKNOWN_TOKEN)


def build_reference(reference: ReferenceFields | None, namespace: str) -> Reference | None:
    """Return a reference within a namespace, `None` where group, kind or name is missing."""
    if reference is None:
        return None
    group = reference.api_group or (reference.api_version or "").partition("/")[0]
    if not reference.kind or not reference.name or not group:
        return None
    return Reference(group=group, kind=reference.kind, namespace=namespace, name=reference.name)


def is_kubeadm_config(reference: Reference) -> bool:
    """Return whether a bootstrap configuration is of the one kind that has bootstrap tokens."""
    return (reference.group, reference.kind) == KUBEADM_CONFIG


def build_machine(
    machine: MachineObject,
    infrastructure: InfrastructureObject | None,
    bootstrap: BootstrapObject | None,
) -> Machine:
    """Join the fields of a Machine with those of the objects that it refers to.

    A reference to an object that does not exist proves nothing: the Machine may still have a
    registered key and a token.
    """
    annotated, on_infrastructure = machine.registered_keys, NO_ANNOTATION
    if infrastructure is not None:
        on_infrastructure = infrastructure.registered_keys
    elif machine.infrastructure is not None:
        on_infrastructure = KeyAnnotation(
            error="the infrastructure object does not exist, or its API group is not configured"
        )
    return Machine(
        name=machine.name,
        uid=machine.uid,
        provider_id=machine.provider_id,
        deleting=machine.deleting,
        bootstrap_ready=machine.bootstrap_ready,
        addresses=machine.addresses,
        node_ref=machine.node_ref,
        created=machine.created,
        bootstrap_token_id=_token_id(machine, bootstrap),
        is_pool_member=False,
        labels=machine.labels,
        registered_keys=annotated.keys + on_infrastructure.keys,
        registered_keys_error=annotated.error or on_infrastructure.error,
    )


def build_pool_member(pool: PoolObject, provider_id: str) -> Machine:
    """Return a pool's member that has no Machine: only its provider ID is known."""
    return Machine(
        name=pool.name,
        uid=pool.uid,
        provider_id=provider_id,
        deleting=pool.deleting,
        bootstrap_ready=pool.bootstrap_ready,
        addresses=(),
        node_ref=None,
        created=None,
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


def _registered_keys(annotations: _Annotations | None, source: str) -> KeyAnnotation:
    return read_key_annotation(annotations.endorsement_key if annotations else None, source)
