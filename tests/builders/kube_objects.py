"""Cluster API objects as the API server returns them, in both versions."""

import base64
from collections.abc import Mapping
from typing import Any

from common.names import API_GROUP
from signer.kinds.cluster import ClusterKey

HOME = ClusterKey(namespace="team-a", name="blue")
DIGEST = "ab" * 32
RECORD = {"cluster-x-k8s-io/tpm-endorsement-key": f"sha256:{DIGEST}"}
PROVIDER_ID = "metal://rack-1/slot-1"
INSECURE_CLIENT_SIGNER = "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"
"""The signer of the Cluster API proposal that attests nothing; not ours."""
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"


def metadata(name: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 # fields of metadata
    return {"name": name, "namespace": HOME.namespace, "uid": f"uid-{name}", **more}


def machine(name: str = "machine-1") -> dict[str, Any]:
    """Return a Machine of v1beta2 that is about to join."""
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": metadata(name, labels={"pool": "workers"}),
        "spec": {
            "clusterName": HOME.name,
            "providerID": PROVIDER_ID,
            "infrastructureRef": {
                "kind": "TestMachine",
                "name": f"infra-{name}",
                "apiGroup": INFRASTRUCTURE,
            },
            "bootstrap": {
                "configRef": {
                    "kind": "KubeadmConfig",
                    "name": f"config-{name}",
                    "apiGroup": "bootstrap.cluster.x-k8s.io",
                }
            },
        },
        "status": {
            "initialization": {"bootstrapDataSecretCreated": True},
            "addresses": [{"type": "Hostname", "address": "node-1"}],
        },
    }


def old_machine(name: str = "machine-1") -> dict[str, Any]:
    """Return the same Machine in v1beta1."""
    body = machine(name)
    body["apiVersion"] = "cluster.x-k8s.io/v1beta1"
    body["spec"]["infrastructureRef"] = {
        "kind": "TestMachine",
        "name": f"infra-{name}",
        "namespace": HOME.namespace,
        "apiVersion": f"{INFRASTRUCTURE}/v1beta1",
    }
    body["spec"]["bootstrap"]["configRef"] = {
        "kind": "KubeadmConfig",
        "name": f"config-{name}",
        "namespace": HOME.namespace,
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1",
    }
    body["status"] = {
        "bootstrapReady": True,
        "addresses": [{"type": "Hostname", "address": "node-1"}],
    }
    return body


def pool(name: str = "pool-1", *provider_ids: str) -> dict[str, Any]:
    return {
        "kind": "MachinePool",
        "metadata": metadata(name),
        "spec": {"clusterName": HOME.name, "providerIDList": list(provider_ids)},
        "status": {"initialization": {"bootstrapDataSecretCreated": True}},
    }


def infrastructure(name: str, **annotations: str) -> dict[str, Any]:
    return {"kind": "TestMachine", "metadata": metadata(name, annotations=annotations)}


def bootstrap(name: str, token: str | None) -> dict[str, Any]:
    discovery = {} if token is None else {"bootstrapToken": {"token": token}}
    spec = {"joinConfiguration": {"discovery": discovery}}
    return {"kind": "KubeadmConfig", "metadata": metadata(name), "spec": spec}


def cluster(name: str = HOME.name, **annotations: str) -> dict[str, Any]:
    return {
        "kind": "Cluster",
        "metadata": metadata(name, annotations=annotations),
        "spec": {
            "controlPlaneEndpoint": {"host": "api.example", "port": 6443},
            "infrastructureRef": {"kind": "TestCluster", "name": name, "apiGroup": INFRASTRUCTURE},
        },
    }


def secret(
    name: str,
    data: Mapping[str, bytes],
    *,
    of: str = HOME.name,
    type: str = "cluster.x-k8s.io/secret",  # noqa: A002 - the field's name
    **more: Any,  # noqa: ANN401 # fields of metadata
) -> dict[str, Any]:
    """Return a Secret of the Cluster `of`."""
    return {
        "metadata": {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": of}, **more},
        "type": type,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def endorsement_key(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 # fields of spec
    return {
        "apiVersion": f"{API_GROUP}/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": DIGEST, "resourceVersion": "5"},
        "spec": spec,
    }
