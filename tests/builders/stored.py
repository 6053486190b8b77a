"""A scenario as the files that `explain` reads: objects in the form of `kubectl get`."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.names import ENDORSEMENT_KEY_ANNOTATION
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION
from signer.kinds.attested_node import encode_attested_node
from signer.kinds.cluster import Cluster
from signer.kinds.csr import Condition, Csr
from signer.kinds.endorsement_key import EndorsementKeyObject, encode_endorsement_key
from signer.kinds.machine import Machine
from signer.kinds.node import Node
from signer.kinds.policy import POLICIES
from signer.seams import ChallengeKeys
from tests.builders.scenario import NOW, Scenario

Body = dict[str, Any]


def coded(data: bytes) -> str:
    """Encode bytes as Kubernetes objects hold them."""
    return base64.b64encode(data).decode()


def csr_body(csr: Csr) -> Body:
    """Return a CSR."""
    spec: Body = {
        "request": coded(csr.request),
        "signerName": csr.signer_name,
        "username": csr.username,
        "groups": sorted(csr.groups),
        "usages": list(csr.usages),
    }
    if csr.expiration_seconds is not None:
        spec["expirationSeconds"] = csr.expiration_seconds
    conditions = [
        {"type": c.type, "status": "True", "reason": c.reason, "message": c.message}
        for c in csr.conditions.values()
    ]
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "name": csr.name,
            "uid": csr.uid,
            "resourceVersion": csr.resource_version,
            "creationTimestamp": csr.created.isoformat(),
        },
        "spec": spec,
        "status": {"conditions": conditions} if conditions else {},
    }


def cluster_body(cluster: Cluster) -> Body:
    """Return a Cluster that has opted in by its annotation."""
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {
            "namespace": cluster.key.namespace,
            "name": cluster.key.name,
            "uid": cluster.uid,
            "annotations": {CLIENT_SIGNER_ANNOTATION: ",".join(sorted(cluster.client_signers))},
        },
        "spec": {"paused": cluster.paused, "controlPlaneEndpoint": {"host": "api.example"}},
    }


def policy_body(spec: Body) -> Body:
    """Return the policy `default`."""
    metadata = {"name": "default", "uid": "uid", "resourceVersion": "1", "generation": 1}
    return POLICIES.manifest(metadata=metadata, spec=spec)


def machine_body(machine: Machine, cluster: Cluster) -> Body:
    """Return a Machine with its registered keys in its annotation."""
    digests = [f"sha256:{record.spki_sha256.hex()}" for record in machine.registered_keys]
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Machine",
        "metadata": {
            "namespace": cluster.key.namespace,
            "name": machine.name,
            "uid": machine.uid,
            "labels": dict(machine.labels),
            "annotations": {ENDORSEMENT_KEY_ANNOTATION: "\n".join(digests)} if digests else {},
            **({"deletionTimestamp": NOW.isoformat()} if machine.deleting else {}),
        },
        "spec": {"clusterName": cluster.key.name, "providerID": machine.provider_id},
        "status": {
            "initialization": {"bootstrapDataSecretCreated": machine.bootstrap_ready},
            "addresses": [{"type": a.type, "address": a.address} for a in machine.addresses],
            **({"nodeRef": {"name": machine.node_ref}} if machine.node_ref else {}),
        },
    }


def node_body(node: Node) -> Body:
    """Return a Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name},
        "spec": {"providerID": node.provider_id},
    }


def endorsement_key_body(key: EndorsementKeyObject) -> Body:
    """Return an EndorsementKey with a holder."""
    assert key.held_by is not None
    body = encode_endorsement_key(key.name, "", key.held_by, NOW)
    body["metadata"]["resourceVersion"] = key.resource_version
    if key.banned:
        body["spec"]["banned"] = {"reason": "lost"}
    return body


def objects_of(scenario: Scenario) -> list[Body]:
    """Return all objects of a scenario's inventory."""
    cluster, store = scenario.cluster, scenario.store
    return [
        cluster_body(cluster),
        *(machine_body(machine, cluster) for machine in store.machines[cluster.key]),
        *map(node_body, scenario.inventory.nodes),
        *map(endorsement_key_body, store.keys.values()),
        *(encode_attested_node(node, node.resource_version) for node in store.nodes.values()),
    ]


def secret_body(challenge_keys: ChallengeKeys) -> Body:
    """Return the Secret with the challenge keys; its last rotation was long ago."""
    data = {"current": challenge_keys.current, "since": b"2026-11-01T00:00:00+00:00"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "node-attestation-system",
            "name": "node-attestation-challenge-keys",
            "resourceVersion": "1",
        },
        "data": {key: coded(value) for key, value in data.items()},
    }


def write_list(path: Path, bodies: Iterable[Body]) -> Path:
    """Return objects in the form of `kubectl get -o json`."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)}))
    return path


def denied(reason: str, message: str) -> Condition:
    """Return the condition of a denied request."""
    return Condition(type="Denied", reason=reason, message=message)
