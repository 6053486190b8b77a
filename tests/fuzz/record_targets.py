"""Other parsers of the signer: policies, kubeconfigs, and objects of API servers."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import yaml
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from common.errors import ApiServerUnavailable
from common.formats import strict_yaml
from common.formats.pem import encode_block
from common.names import CHALLENGE_ANNOTATION, CLIENT_SIGNER
from common.public_keys import public_key_from_area
from signer.errors import AuthorityUnavailable, KubeconfigRefused
from signer.explain.manifests import FilesInvalid, read_objects
from signer.explain.offline_inventory import OfflineObjects
from signer.host_names import canonical_name
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.caches import AUTO_APPROVE_ROLES, read_binding, read_node, read_service
from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.key_annotation import read_key_annotation
from signer.inventory.cluster_api.machine_object import read_machine, read_pool
from signer.inventory.cluster_api.references import read_bootstrap, read_infrastructure
from signer.inventory.custom_resources.policy_object import read_policy
from signer.inventory.node_labels import ATTESTED, POLICY
from signer.issue.authority import parse_authority
from signer.kinds.attested_node import encode_attested_node, read_attested_node
from signer.kinds.csr import Csr
from signer.kinds.decode import Json, Source
from signer.kinds.endorsement_key import encode_endorsement_key, read_endorsement_key
from signer.kinds.key_request import read_key_request
from signer.kube.access_review import read_decided_review, read_requester, read_token_review
from signer.kube.csrs import read_csr
from signer.kube.transport.kubeconfig import parse_kubeconfig
from signer.policy.changes.pcr_predictions import PredictionsInvalid, read_predictions
from signer.policy.load import PolicyFileInvalid, load_policies
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.builders import certificates, kube_objects
from tests.builders.scenario import NOW, Scenario
from tests.fuzz.mutations import Form
from tests.fuzz.shared_targets import scenario
from tests.fuzz.target import Refused, Target, file
from tests.fuzz.verify_targets import leaves, vendor

CSR: Final = {
    "metadata": {
        "name": "csr",
        "uid": "u",
        "resourceVersion": "1",
        "annotations": {CHALLENGE_ANNOTATION: "b"},
        "creationTimestamp": "2026-11-21T09:30:00Z",
    },
    "spec": {
        "signerName": CLIENT_SIGNER,
        "username": "n",
        "groups": ["g"],
        "usages": ["u"],
        "request": "QUJD",
        "expirationSeconds": 600,
    },
    "status": {
        "conditions": [{"type": "Denied", "status": "True", "reason": "r", "message": "m"}],
        "certificate": "QUJD",
    },
}
"""A CertificateSigningRequest, as the API server returns it."""


def _trust_anchors(data: bytes) -> None:
    """Load the input as an intermediate authority, then as a revocation list."""
    root = vendor()[0].der
    assert load_trust_anchors({"root": root, "other": data}, {}).roots
    load_trust_anchors({"root": root}, {"list": data})


def _anchor_files() -> list[bytes]:
    _, issuer = vendor()
    revoked = certificates.revocation_list(issuer, 7, 9)
    return [revoked, encode_block("X509 CRL", revoked)]


def _kubeconfig(data: bytes) -> None:
    connection = parse_kubeconfig(data)
    assert connection.server.startswith("https://")
    assert connection.host
    assert connection.ca
    assert connection.token or connection.certificate


def kubeconfigs() -> list[bytes]:
    """Return kubeconfigs as Cluster API writes them."""
    pem = base64.b64encode(encode_block("CERTIFICATE", b"der")).decode()
    cluster = {"server": "https://api.example:6443", "certificate-authority-data": pem}
    users = ({"client-certificate-data": pem, "client-key-data": pem}, {"token": "abc.def"})
    return [_kubeconfig_of(cluster, user) for user in users]


def _kubeconfig_of(cluster: dict[str, str], user: dict[str, str]) -> bytes:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    return yaml.safe_dump(document).encode()


def _plain_yaml(data: bytes) -> None:
    """Parse the input, write the result, and parse that again."""
    documents = strict_yaml.load_all(data)
    again = strict_yaml.load_all(yaml.safe_dump_all(documents, sort_keys=False))
    assert repr(again) == repr(documents)


def _yamls() -> list[bytes]:
    values = (
        b"a: [1, -0x1f, 1.5e+3, true, ~, '2', 2026-11-21, .nan]\nb: &c {d: e}\nf: *c\ng: |\n h\n"
    )
    return [values, b"--- a\n--- {<<: {b: 1}, c: 2}\n", *kubeconfigs()]


def _policies(data: bytes) -> None:
    policies = load_policies(data.decode("utf-8", "replace")).accepted
    assert policies
    for policy in policies:
        assert policy.bootstrap_groups
        assert policy.pcrs.selection
        assert policy.attestation_key.schemes


def _policy_files() -> list[bytes]:
    digest = "ab" * 32
    allowed = {"sha256": {"4": [digest], "7": [digest]}}
    spec = {
        "clusterRef": {"namespace": "tenants", "name": "blue"},
        "minimumVersion": "v1",
        "bootstrapGroups": ["system:bootstrappers"],
        "endorsementKey": {"trust": "Certified", "certificateAuthorities": ["/etc/authorities"]},
        "attestationKey": {"schemes": ["ecdsa-p256-sha256"]},
        "pcrs": {
            "selection": {"sha256": [4, 7]},
            "mode": "Enforce",
            "allowed": allowed,
            "variants": [
                {"machineSelector": {"matchLabels": {"pool": "a"}}, "allowed": allowed},
            ],
        },
        "eventLog": {"secureBoot": True, "platformKeys": [digest]},
        "nodeNames": {"machineName": True},
        "certificate": {"lifetime": "24h30m"},
        "serving": {"builtin": "Approve", "nodeRefFallback": True},
    }
    selected = {
        "clusterSelector": {"namespaces": ["tenants"], "matchLabels": {"pool": "a"}},
        "endorsementKey": {
            "trust": "Registered",
            "platform": {"type": "aws", "credentialsFile": "/aws", "locations": ["eu-central-1"]},
        },
        "firstJoin": {"within": "2h"},
        "renewals": {"unknownCredential": "Deny"},
        "nodeLabels": "Enabled",
    }
    policies = [_policy("blue", spec), _policy("others", {}), _policy("selected", selected)]
    return [yaml.safe_dump_all(policies[:count]).encode() for count in (1, 3)]


def _policy(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAttestationPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def _key_annotation(data: bytes) -> None:
    """Read the whole annotation or none of it. A part of it would register other keys."""
    value = data.decode("utf-8", "surrogateescape")
    annotation = read_key_annotation(value, "Machine annotation")
    assert bool(annotation.keys) is (annotation.error is None)
    if annotation.error is not None:
        raise Refused


def _annotations() -> list[bytes]:
    key = public_key_from_area(scenario().ek.public)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    certificate = encode_block("CERTIFICATE", leaves()[0])
    digest = b"sha256:" + b"ab" * 32
    return [pem, certificate, digest, b"\n".join((pem, certificate, digest))]


_READERS = (
    *(read_machine, read_pool, read_cluster, read_infrastructure, read_bootstrap),
    *(read_endorsement_key, read_attested_node, read_csr, read_key_request, read_policy),
    *(read_node, read_binding, read_service),
    *(read_requester, read_decided_review, read_token_review),
)


def _objects(data: bytes) -> None:
    """Read an object as each kind. A reader that cannot read it raises `ValueError`.

    The readers get the same values from plain data (for `explain`) as from the wire.
    """
    readable = [_from_wire_and_values(data, read) for read in _READERS]
    if not any(readable):
        raise Refused


def _from_wire_and_values(data: bytes, read: Callable[[Source], object]) -> bool:
    try:
        value = read(data)
    except ValueError:
        return False
    try:
        values = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        # A field that is not read may have text that is not UTF-8.
        return True
    assert _without_size(read(values)) == _without_size(value)
    return True


def _without_size(value: object) -> object:
    """Return a CSR without the size of its annotations, which counts white space of the wire."""
    return replace(value, annotations_size=0) if isinstance(value, Csr) else value


def _bodies() -> list[bytes]:
    key, node = Scenario().put_claim()
    assert key.held_by is not None
    cluster = kube_objects.cluster()
    cluster["spec"]["clusterNetwork"] = {"services": {"cidrBlocks": ["10.96.0.0/12", "fd00::/108"]}}
    cluster["spec"]["security"] = {"kubeletAuthentication": True}
    encoded_key = encode_endorsement_key(key.name, "", key.held_by, NOW)
    encoded_key["metadata"]["resourceVersion"] = "1"
    bodies = [
        *(
            kube_objects.machine(),
            kube_objects.old_machine(),
            kube_objects.pool("pool-1", "a://1", "a://2"),
        ),
        *(
            cluster,
            kube_objects.infrastructure("i", **kube_objects.RECORD),
            kube_objects.bootstrap("b", "a.b"),
        ),
        *(encoded_key, encode_attested_node(node, "1"), CSR),
    ]
    return [json.dumps(body).encode() for body in bodies]


def _further_bodies() -> list[bytes]:
    """Return objects that a dump for `explain` does not have in this form."""
    metadata = {"name": "n", "namespace": "tenants", "uid": "u", "resourceVersion": "1"}
    offered = {
        "sha256": "ab" * 32,
        "nodeName": "node-1",
        "requester": "system:bootstrap:abcdef",
        "firstSeen": "2026-11-21T09:30:00Z",
        "certificate": {"status": "Trusted", "manufacturer": "NTC", "certifiedFor": "m"},
    }
    requested = {"clusterName": "blue", "machineUID": "u", "providerID": "a://1", "keys": [offered]}
    policy, *_ = yaml.safe_load_all(_policy_files()[1])
    user = {"username": "u", "uid": "1", "groups": ["g"], "extra": {"key": ["value"]}}
    bodies: list[Json] = [
        {
            "metadata": {**metadata, "labels": {ATTESTED: "true", POLICY: "blue", "other": "x"}},
            "spec": {"providerID": "a://1"},
        },
        {"metadata": metadata, "roleRef": {"name": min(AUTO_APPROVE_ROLES)}},
        {"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"]}},
        {"metadata": metadata, "spec": requested},
        {"metadata": {**metadata, "generation": 2}, "spec": policy["spec"], "status": {"a": 1}},
        {"metadata": metadata, "spec": user},
        {"status": {"allowed": False, "evaluationError": ""}},
        {"status": {"authenticated": True, "user": user}},
    ]
    return [json.dumps(body).encode() for body in bodies]


def _dump(data: bytes) -> None:
    """Read objects from a file, and read an inventory of them."""
    dump = OfflineObjects(read_objects(file("objects", data)))
    workload = dump.workload(kube_objects.HOME)
    inventory = CachedInventory(dump, workload)
    try:
        assert inventory.cluster().key == kube_objects.HOME
    except ApiServerUnavailable as error:
        raise Refused from error
    for machine in dump.machines.all():
        machines = [*inventory.machines(machine.provider_id)]
        for address in machine.addresses:
            machines += inventory.machines_with_host_name(canonical_name(address.address))
        assert all(each.name for each in machines)


def _dumps() -> list[bytes]:
    bodies = [json.loads(body) for body in _bodies()]
    service = {"kind": "Service", "metadata": {"namespace": "default", "name": "kubernetes"}}
    node = {"kind": "Node", "metadata": {"name": "node-1"}, "spec": {"providerID": "a://1"}}
    for body in bodies:
        body["apiVersion"] = _VERSIONS.get(body.setdefault("kind", "Event"), body.get("apiVersion"))
    core = [{**body, "apiVersion": "v1"} for body in (service, node)]
    return [json.dumps({"apiVersion": "v1", "kind": "List", "items": [*bodies, *core]}).encode()]


_VERSIONS: Final = {
    "MachinePool": "cluster.x-k8s.io/v1beta2",
    "Cluster": "cluster.x-k8s.io/v1beta2",
    "KubeadmConfig": "bootstrap.cluster.x-k8s.io/v1beta2",
    "TestMachine": f"{kube_objects.INFRASTRUCTURE}/v1beta2",
}


def _authority(data: bytes) -> None:
    certificate, _, key = data.partition(b"\0")
    authority = parse_authority({"tls.crt": certificate, "tls.key": key})
    assert authority.certificate.public_key() == authority.private_key.public_key()


def _authorities() -> list[bytes]:
    root = certificates.authority("kubernetes")
    key = root.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return [root.certificate.public_bytes(Encoding.PEM) + b"\0" + key]


def _predictions(data: bytes) -> None:
    for value in read_predictions(data):
        bank, index = value.where
        assert bank in {"sha256", "sha384", "sha512"}
        assert 0 <= int(index) < 24
        assert bytes.fromhex(value.digest).hex() == value.digest


def _prediction_files() -> list[bytes]:
    value = "ab" * 32
    documents: list[Json] = [
        {"pcrs": {"4": {"sha256": [value], "sha384": [value[:32] * 3]}}},
        {"pcrs": [{"id": 4, "value": value, "events": [{"pcr": 4, "hash": value}]}]},
        {"sha256": [{"phase": "enter-initrd", "pcr": 11, "hash": value}]},
    ]
    return [json.dumps(document).encode() for document in documents]


TARGETS = (
    Target(
        name="trust-anchors",
        run=_trust_anchors,
        seeds=_anchor_files,
        errors=(ValueError,),
        form=Form.DER,
    ),
    Target(
        name="kubeconfig",
        run=_kubeconfig,
        seeds=kubeconfigs,
        errors=(KubeconfigRefused,),
        form=Form.YAML,
    ),
    Target(
        name="plain-yaml",
        run=_plain_yaml,
        seeds=_yamls,
        errors=(strict_yaml.YamlMalformed,),
        form=Form.YAML,
    ),
    Target(
        name="policies",
        run=_policies,
        seeds=_policy_files,
        errors=(PolicyFileInvalid,),
        form=Form.YAML,
    ),
    Target(
        name="pcr-predictions",
        run=_predictions,
        seeds=_prediction_files,
        errors=(PredictionsInvalid,),
        form=Form.JSON,
    ),
    Target(name="key-records", run=_key_annotation, seeds=_annotations, form=Form.PEM),
    Target(
        name="objects",
        run=_objects,
        seeds=lambda: [*_bodies(), *_further_bodies()],
        errors=(ApiServerUnavailable,),
        form=Form.JSON,
    ),
    Target(name="dump", run=_dump, seeds=_dumps, errors=(FilesInvalid,), form=Form.JSON),
    Target(
        name="authority",
        run=_authority,
        seeds=_authorities,
        errors=(AuthorityUnavailable,),
        form=Form.PEM,
    ),
)
