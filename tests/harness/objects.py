"""Objects of Cluster API before a node joins, and of the tests' infrastructure provider."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.harness.client import Object

CORE = "cluster.x-k8s.io"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
SECRET_TYPE = "cluster.x-k8s.io/secret"
INTERNAL_ADDRESS = "192.0.2.10"

Annotations = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Machine:
    """Properties of a machine that a test sets; the others have the usual values."""

    name: str
    _: KW_ONLY
    provider_id: str = ""
    addresses: Sequence[tuple[str, str]] | None = None
    """Pairs of type and address; by default the name as Hostname and InternalDNS, and an IP."""
    bootstrap_ready: bool = True
    bootstrap_config: str = ""
    """Name of its KubeadmConfig; by default it has none."""
    annotations: Annotations = field(default_factory=dict)
    infrastructure_annotations: Annotations = field(default_factory=dict)

    def listed_addresses(self) -> list[dict[str, str]]:
        """Return the addresses in the form of a status."""
        usual = [
            ("Hostname", self.name),
            ("InternalDNS", self.name),
            ("InternalIP", INTERNAL_ADDRESS),
        ]
        addresses = usual if self.addresses is None else self.addresses
        return [{"type": kind, "address": address} for kind, address in addresses]


def cluster(name: str, *, endpoint: str, annotations: Annotations) -> Object:
    """Return a Cluster that is provisioned."""
    host, _, port = endpoint.removeprefix("https://").rpartition(":")
    return {
        "apiVersion": f"{CORE}/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            "controlPlaneEndpoint": {"host": host, "port": int(port)},
            "infrastructureRef": _reference("TestCluster", name),
        },
        "status": {
            "initialization": {"infrastructureProvisioned": True, "controlPlaneInitialized": True},
            "phase": "Provisioned",
            # Before that, Cluster API's manager does not watch the Nodes.
            "conditions": [_condition("ControlPlaneInitialized", ready=True)],
        },
    }


def machine(cluster_name: str, spec: Machine, *, provider_id: str) -> Object:
    """Return a Machine whose infrastructure is provisioned and whose node has not joined."""
    ready = spec.bootstrap_ready
    bootstrap: Object = {"dataSecretName": f"{spec.name}-bootstrap"}
    if spec.bootstrap_config:
        reference = _reference("KubeadmConfig", spec.bootstrap_config, group=BOOTSTRAP)
        bootstrap["configRef"] = reference
    return {
        "apiVersion": f"{CORE}/v1beta2",
        "kind": "Machine",
        "metadata": {
            "name": spec.name,
            "labels": {CLUSTER_LABEL: cluster_name},
            "annotations": dict(spec.annotations),
        },
        "spec": {
            "clusterName": cluster_name,
            "bootstrap": bootstrap,
            "infrastructureRef": _reference("TestMachine", spec.name),
            "providerID": provider_id,
        },
        "status": {
            "addresses": spec.listed_addresses(),
            "initialization": {
                "infrastructureProvisioned": True,
                "bootstrapDataSecretCreated": ready,
            },
            "conditions": [_condition("BootstrapConfigReady", ready=ready)],
        },
    }


def infrastructure_cluster(name: str) -> Object:
    """Return the infrastructure object of a Cluster."""
    return _infrastructure("TestCluster", name, name, {})


def infrastructure_machine(cluster_name: str, spec: Machine, *, provider_id: str) -> Object:
    """Return the infrastructure object of a Machine."""
    body = _infrastructure("TestMachine", spec.name, cluster_name, {"providerID": provider_id})
    body["metadata"]["annotations"] = dict(spec.infrastructure_annotations)
    body["status"]["addresses"] = spec.listed_addresses()
    return body


def kubeadm_config(name: str, *, token: str) -> Object:
    """Return the bootstrap configuration that owns a bootstrap token."""
    discovery = {
        "bootstrapToken": {
            "token": token,
            "apiServerEndpoint": "endpoint.invalid:6443",
            "unsafeSkipCAVerification": True,
        }
    }
    return {
        "apiVersion": f"{BOOTSTRAP}/v1beta2",
        "kind": "KubeadmConfig",
        "metadata": {"name": name},
        "spec": {"joinConfiguration": {"discovery": discovery}},
    }


def secret(cluster_name: str, purpose: str, data: Mapping[str, str]) -> Object:
    """Return a Secret that Cluster API keeps for a Cluster, like <cluster>-kubeconfig."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{cluster_name}-{purpose}",
            "labels": {CLUSTER_LABEL: cluster_name},
        },
        "type": SECRET_TYPE,
        "stringData": dict(data),
    }


def _condition(kind: str, *, ready: bool) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True" if ready else "False",
        "reason": "Ready" if ready else "NotReady",
        "message": "",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _infrastructure(kind: str, name: str, cluster_name: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": f"{INFRASTRUCTURE}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": {CLUSTER_LABEL: cluster_name}},
        "spec": spec,
        "status": {"initialization": {"provisioned": True}},
    }


def _reference(kind: str, name: str, *, group: str = INFRASTRUCTURE) -> dict[str, str]:
    return {"apiGroup": group, "kind": kind, "name": name}
