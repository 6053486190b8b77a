"""Machines, MachinePools, their infrastructure and bootstrap objects, in v1beta1 and v1beta2.

Source: Cluster API's api/core/v1beta1 and v1beta2; where the two differ, either is read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from signer.inventory.key_annotation import KeyRecords, key_records
from signer.kube.fields import Json, at, labels, mappings, required, text, texts
from signer.model import Address, ClusterKey, Machine

NO_TOKEN: Final = ""
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
    records: KeyRecords
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

    records: KeyRecords
    client_signer: str | None
    """`status.kubeletClientCertificateSigner` of an infrastructure cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapObject:
    """A KubeadmConfig: the ID of the bootstrap token that it owns, where it owns one."""

    token_id: str | None


def read_machine(body: Json) -> MachineObject:
    """Read a Machine."""
    namespace = required(body, "metadata", "namespace")
    return MachineObject(
        cluster=ClusterKey(namespace=namespace, name=required(body, "spec", "clusterName")),
        name=required(body, "metadata", "name"),
        uid=required(body, "metadata", "uid"),
        provider_id=text(body, "spec", "providerID") or "",
        deleting=at(body, "metadata", "deletionTimestamp") is not None,
        bootstrap_ready=_bootstrap_ready(body),
        addresses=tuple(
            Address(type=required(a, "type"), address=required(a, "address"))
            for a in mappings(body, "status", "addresses")
        ),
        node_ref=text(body, "status", "nodeRef", "name"),
        labels=labels(body),
        records=key_records(body, "Machine annotation"),
        infrastructure=read_reference(at(body, "spec", "infrastructureRef"), namespace),
        bootstrap=read_reference(at(body, "spec", "bootstrap", "configRef"), namespace),
    )


def read_pool(body: Json) -> PoolObject:
    """Read a MachinePool."""
    namespace = required(body, "metadata", "namespace")
    return PoolObject(
        cluster=ClusterKey(namespace=namespace, name=required(body, "spec", "clusterName")),
        name=required(body, "metadata", "name"),
        uid=required(body, "metadata", "uid"),
        provider_ids=texts(body, "spec", "providerIDList"),
        deleting=at(body, "metadata", "deletionTimestamp") is not None,
        bootstrap_ready=_bootstrap_ready(body),
        labels=labels(body),
    )


def read_infrastructure(body: Json) -> InfrastructureObject:
    """Read an infrastructure provider's object of any kind."""
    return InfrastructureObject(
        records=key_records(body, f"{required(body, 'kind')} annotation"),
        client_signer=text(body, "status", "kubeletClientCertificateSigner"),
    )


def read_bootstrap(body: Json) -> BootstrapObject:
    """Read the ID of a KubeadmConfig's bootstrap token, and leave the secret where it is."""
    token = text(body, "spec", "joinConfiguration", "discovery", "bootstrapToken", "token")
    if token is None:
        return BootstrapObject(token_id=None)
    matched = _TOKEN.fullmatch(token)
    return BootstrapObject(token_id=matched[1] if matched else NO_TOKEN)


def read_reference(body: object, namespace: str) -> Reference | None:
    """Read a reference of v1beta2 (`apiGroup`) or v1beta1 (`apiVersion`), within a namespace."""
    kind, name = text(body, "kind"), text(body, "name")
    group = text(body, "apiGroup") or (text(body, "apiVersion") or "").partition("/")[0]
    if kind is None or name is None or not group:
        return None
    return Reference(group=group, kind=kind, namespace=namespace, name=name)


def is_kubeadm_config(reference: Reference) -> bool:
    """Tell whether a bootstrap configuration is of the one kind that owns tokens."""
    return (reference.group, reference.kind) == KUBEADM_CONFIG


def machine_of(
    machine: MachineObject,
    infrastructure: InfrastructureObject | None,
    bootstrap: BootstrapObject | None,
) -> Machine:
    """Put together what a Machine and the objects that it refers to say.

    A reference to nothing is no statement: neither that there is no record, nor that there is no
    token.
    """
    own, infra = machine.records, KeyRecords()
    if infrastructure is not None:
        infra = infrastructure.records
    elif machine.infrastructure is not None:
        infra = KeyRecords(error="the infrastructure object is not there")
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
        records=own.records + infra.records,
        record_error=own.error or infra.error,
    )


def member_of(pool: PoolObject, provider_id: str) -> Machine:
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
        records=(),
        record_error=None,
    )


def _token_id(machine: MachineObject, bootstrap: BootstrapObject | None) -> str | None:
    if machine.bootstrap is None or not is_kubeadm_config(machine.bootstrap):
        return None
    return NO_TOKEN if bootstrap is None else bootstrap.token_id


def _bootstrap_ready(body: Json) -> bool:
    if at(body, "status", "initialization", "bootstrapDataSecretCreated") is True:
        return True
    if at(body, "status", "bootstrapReady") is True:
        return True
    return any(
        condition.get("type") in _BOOTSTRAP_CONDITIONS and condition.get("status") == "True"
        for condition in mappings(body, "status", "conditions")
    )
