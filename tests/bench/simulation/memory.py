"""Bytes that the signer counts for one Machine and its node, in the caches of the signer itself."""

import json
from typing import Any, Final

import msgspec

from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.caches import ManagementCaches, WorkloadCaches
from signer.inventory.cluster_api.machine_object import read_machine
from signer.inventory.cluster_api.references import (
    InfrastructureObject,
    Reference,
    read_bootstrap,
    read_infrastructure,
)
from signer.kinds.attested_node import encode_attested_node, read_attested_node
from signer.kinds.node import Node
from signer.kube.watches.cache import Cache
from tests.bench.claims import numbered_node
from tests.builders import kube_objects

_UNLIMITED: Final = 1 << 40
_UID: Final = "0f8fad5b-d9cb-469f-a165-70867728950e"


class _Caches(ManagementCaches):
    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        raise NotImplementedError


def bytes_of_machine(*, with_references: bool = True) -> int:
    """Return the size of a Machine, what it refers to, its Node and its claim.

    Without references, the Machine has neither an infrastructure object nor a bootstrap object.
    EndorsementKeys count for no tenant.
    """
    budget = MemoryBudget(per_tenant=_UNLIMITED, total=_UNLIMITED)
    caches = _Caches(budget)
    infrastructure: Cache[InfrastructureObject] = Cache("infrastructure", budget=budget)
    workload = WorkloadCaches(kube_objects.HOME, _UID, host="", budget=budget)
    claim = numbered_node(0)
    name = f"{kube_objects.HOME.namespace}/{claim.node_name}"
    caches.machines.upsert(name, read_machine(_raw(_machine())))
    if with_references:
        token = kube_objects.bootstrap(claim.node_name, "abcdef.0123456789abcdef")
        caches.bootstraps.upsert(name, read_bootstrap(_raw(token)))
        bare = kube_objects.infrastructure(claim.node_name)
        infrastructure.upsert(name, read_infrastructure(_raw(bare)))
    stored = encode_attested_node(claim, "12345678")
    stored["metadata"] |= {"uid": _UID, "creationTimestamp": "2026-11-22T00:00:00Z"}
    caches.nodes.upsert(name, read_attested_node(_raw(stored)))
    workload.nodes.upsert(
        claim.node_name, Node(name=claim.node_name, provider_id=claim.provider_id)
    )
    return sum(budget.used().values())


def _machine() -> dict[str, Any]:
    """Return a Machine as an infrastructure provider of a cloud fills it in."""
    claim = numbered_node(0)
    machine = kube_objects.machine(claim.node_name)
    machine["metadata"] |= {
        "uid": _UID,
        "labels": {
            "cluster.x-k8s.io/cluster-name": claim.cluster.name,
            "cluster.x-k8s.io/deployment-name": "workload-md-0",
            "machine-template-hash": "7k2lq",
        },
    }
    machine["spec"]["providerID"] = claim.provider_id
    machine["status"]["nodeRef"] = {"name": claim.node_name}
    machine["status"]["addresses"] = [
        {"type": "Hostname", "address": claim.node_name},
        {"type": "InternalIP", "address": "10.1.2.3"},
        {"type": "InternalDNS", "address": "ip-10-1-2-3.eu-central-1.compute.internal"},
    ]
    return machine


def _raw(body: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(body).encode())
