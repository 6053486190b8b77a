"""Machines and MachinePools, in v1beta1 and v1beta2.

Source: Cluster API's api/core/v1beta1 and v1beta2. Where they differ, both forms are read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Final

import msgspec

from common.names import VM_ID_ANNOTATION
from signer.host_names import HostName, canonical_name
from signer.inventory.cluster_api.key_annotation import NO_ANNOTATION, KeyAnnotation
from signer.inventory.cluster_api.references import (
    UNKNOWN_TOKEN,
    Annotation,
    BootstrapObject,
    InfrastructureObject,
    KeyAnnotationFields,
    Reference,
    ReferenceFields,
    build_reference,
    is_kubeadm_config,
    read_registered_keys,
)
from signer.kinds.cluster import ClusterKey, shared_cluster_key
from signer.kinds.decode import (
    MAX_ENTRIES,
    Fields,
    Labels,
    MaybeName,
    MaybeText,
    Name,
    Namespace,
    Source,
    Text,
    Time,
    decode,
    shared,
    texts,
)
from signer.kinds.machine import Address, Machine

CONDITION: Final = "KubeletAttested"
MAX_MESSAGE: Final = 1024
"""Characters of the message that the signer writes into the condition."""
_MAX_ADDRESSES: Final = 256
"""Addresses of one Machine that are read: as many as v1beta2 allows. v1beta1 has no limit."""
_MAX_CONDITION_MESSAGE: Final = 32768
"""Characters that Kubernetes allows in the message of any condition."""
_MAX_MEMBERS: Final = 20_000
"""Provider IDs of one MachinePool."""
_VM_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_BOOTSTRAP_CONDITIONS: Final = frozenset({"BootstrapConfigReady", "BootstrapReady"})


@dataclass(frozen=True, slots=True)
class AttestedCondition:
    """The condition KubeletAttested of a Machine, as text; nothing here is verified."""

    status: str
    reason: str
    since: str
    message: str = ""
    generation: int | None = None
    """The generation of the Machine that it is about."""


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
    host_names: tuple[HostName, ...]
    """The addresses in the form that is compared with those of other Machines."""
    node_ref: str | None
    labels: Mapping[str, str]
    registered_keys: KeyAnnotation
    infrastructure: Reference | None
    bootstrap: Reference | None
    attested: AttestedCondition | None
    """`None` until the signer has written it."""
    generation: int | None = None
    vm_id: str | None = None


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


class _Annotations(KeyAnnotationFields):
    vm_id: Annotation = msgspec.field(name=VM_ID_ANNOTATION, default=None)


class _Meta(Fields):
    name: Name
    namespace: Namespace
    uid: Text
    creation_timestamp: Time | None = None
    deletion_timestamp: MaybeText = None
    generation: int | None = None
    labels: Labels = None
    annotations: _Annotations | None = None


class _Bootstrap(Fields):
    config_ref: ReferenceFields | None = None


class _MachineSpec(Fields):
    cluster_name: Name
    provider_id: MaybeText = msgspec.field(name="providerID", default=None)
    infrastructure_ref: ReferenceFields | None = None
    bootstrap: _Bootstrap | None = None


class _Address(Fields):
    type: Text
    address: Text


class _NodeRef(Fields):
    name: MaybeName = None


class _Initialization(Fields):
    bootstrap_data_secret_created: bool | None = None


class _Condition(Fields):
    type: MaybeText = None
    status: MaybeText = None
    reason: MaybeText = None
    last_transition_time: MaybeText = None
    message: Annotated[str, msgspec.Meta(max_length=_MAX_CONDITION_MESSAGE)] | None = None
    observed_generation: int | None = None


_Conditions = Annotated[list[_Condition], msgspec.Meta(max_length=MAX_ENTRIES)] | None


class _NewStatus(Fields):
    conditions: _Conditions = None


class _BootstrapStatus(Fields):
    initialization: _Initialization | None = None
    bootstrap_ready: bool | None = None
    conditions: _Conditions = None

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
    v1beta2: _NewStatus | None = None


class _Machine(Fields):
    metadata: _Meta
    spec: _MachineSpec
    status: _MachineStatus | None = None


class _PoolSpec(Fields):
    cluster_name: Name
    provider_ids: Annotated[list[MaybeText], msgspec.Meta(max_length=_MAX_MEMBERS)] | None = (
        msgspec.field(name="providerIDList", default=None)
    )


class _Pool(Fields):
    metadata: _Meta
    spec: _PoolSpec
    status: _BootstrapStatus | None = None


def read_machine(source: Source) -> MachineObject:
    """Read a Machine. Raises `ValueError`."""
    machine = decode(source, _Machine)
    metadata, spec = machine.metadata, machine.spec
    cluster = shared_cluster_key(metadata.namespace, spec.cluster_name)
    status = machine.status or _MachineStatus()
    bootstrap = spec.bootstrap or _Bootstrap()
    addresses = (status.addresses or [])[:_MAX_ADDRESSES]
    annotations = metadata.annotations or _Annotations()
    registered_keys = read_registered_keys(annotations, "Machine annotation")
    vm_id = annotations.vm_id
    if vm_id is not None and _VM_ID.fullmatch(vm_id) is None:
        vm_id = None
        error = f"Machine annotation: {VM_ID_ANNOTATION} must be the UUID of a virtual machine"
        registered_keys = replace(registered_keys, error=registered_keys.error or error)
    return MachineObject(
        cluster=cluster,
        name=metadata.name,
        uid=metadata.uid,
        provider_id=spec.provider_id or "",
        created=metadata.creation_timestamp,
        deleting=metadata.deletion_timestamp is not None,
        bootstrap_ready=status.is_ready,
        addresses=tuple(Address(type=shared(a.type), address=a.address) for a in addresses),
        host_names=tuple({canonical_name(a.address): None for a in addresses}),
        node_ref=(status.node_ref.name or None) if status.node_ref else None,
        labels={shared(k): shared(v) for k, v in (metadata.labels or {}).items()},
        registered_keys=registered_keys,
        vm_id=vm_id.lower() if vm_id is not None else None,
        infrastructure=build_reference(spec.infrastructure_ref, cluster.namespace),
        bootstrap=build_reference(bootstrap.config_ref, cluster.namespace),
        attested=_attested_condition(status),
        generation=metadata.generation,
    )


def read_pool(source: Source) -> PoolObject:
    """Read a MachinePool. Raises `ValueError`."""
    pool = decode(source, _Pool)
    metadata, spec = pool.metadata, pool.spec
    return PoolObject(
        cluster=shared_cluster_key(metadata.namespace, spec.cluster_name),
        name=metadata.name,
        uid=metadata.uid,
        provider_ids=texts(spec.provider_ids),
        deleting=metadata.deletion_timestamp is not None,
        bootstrap_ready=pool.status is not None and pool.status.is_ready,
        labels=metadata.labels or {},
    )


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
        vm_id=machine.vm_id,
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


def _attested_condition(status: _MachineStatus) -> AttestedCondition | None:
    """Return the condition from where `MachineStatusClient` writes it in either version."""
    new = (status.v1beta2 and status.v1beta2.conditions) or ()
    for condition in (*new, *(status.conditions or ())):
        if condition.type == CONDITION:
            return AttestedCondition(
                status=condition.status or "",
                reason=condition.reason or "",
                since=condition.last_transition_time or "",
                # One character too many is enough to differ from every message of the signer.
                message=(condition.message or "")[: MAX_MESSAGE + 1],
                generation=condition.observed_generation,
            )
    return None


def _token_id(machine: MachineObject, bootstrap: BootstrapObject | None) -> str | None:
    if machine.bootstrap is None or not is_kubeadm_config(machine.bootstrap):
        return None
    return UNKNOWN_TOKEN if bootstrap is None else bootstrap.token_id
