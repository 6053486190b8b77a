"""`explain`: replays a request of a live workload cluster, check by check.

It reads what the signer would read, and writes nothing. `node-attestation-signer verify` does the
same with files.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from common.errors import AttestationError
from signer.explain.command import explain_requests
from signer.explain.manifests import FilesInvalid
from signer.explain.offline_inventory import Dump
from signer.inventory.challenge_keys import SECRET_NAME, keys_from_secret
from signer.inventory.cluster import ClusterObject
from signer.inventory.machine import KUBEADM_CONFIG, Reference
from signer.kube.client import ApiClient
from signer.kube.csrs import CSRS, read_csr
from signer.kube.discovery import collection_path
from signer.model import ChallengeKeys, ClusterKey, Csr
from signer.operator_cli.errors import Rejected, ServerUnavailable
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.output import printable
from signer.operator_cli.policies import load_for_cluster, read_policy_file, warn_if_unread
from signer.operator_cli.session import Session
from signer.operator_cli.snapshot import ATTESTED_NODES, CAPI, ENDORSEMENT_KEYS
from signer.operator_cli.workloads import (
    Body,
    connect_workload,
    list_workload,
    parse_object,
    read_named_secret,
    reading_workload,
)

_NODES: Final = "/api/v1/nodes"
_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_SERVICE: Final = "/api/v1/namespaces/default/services/kubernetes"


def run(session: Session) -> int:
    """Print the report of `verify`; the exit status is the verdict."""
    arguments = session.arguments
    snapshot = session.snapshot()
    [cluster] = snapshot.clusters
    with session.progress("reading the objects that the verdict depends on"):
        csr, workload = _read_workload(session.api, cluster, arguments.csr)
        dump = _dump([*_management_bodies(session.api, cluster.key), *workload])
        keys = _challenge_keys(session) if arguments.challenge_keys else None
        if arguments.policy is None:
            warn_if_unread(session)
            loaded = load_for_cluster(session.api, cluster)
        else:
            loaded = read_policy_file(arguments.policy)
    try:
        report, status = explain_requests(
            [csr],
            dump,
            policies=loaded.policies,
            anchors=loaded.anchors,
            cluster=cluster.key,
            challenge_keys=keys,
            now=session.now,
            json=arguments.output == "json",
        )
    except FilesInvalid as e:
        raise ServerUnavailable("\n".join(e.problems)) from e
    if arguments.output == "table":
        # The flag of `verify` has another name. Names in the report are the tenant's.
        report = report.replace("(--challenge-key-secret)", "(--challenge-keys)")
        report = "\n".join(map(printable, report.split("\n")))
    session.stdout.write(report)
    return status


def _read_workload(api: ManagementApi, cluster: ClusterObject, name: str) -> tuple[Csr, list[Body]]:
    """Return the request, and the objects of the workload cluster."""
    with reading_workload(cluster), closing(connect_workload(api, cluster)) as client:
        csr = client.get(f"{CSRS}/{quote(name, safe='')}", accepted=(200, 404))
        if csr.status != HTTPStatus.OK:
            raise Rejected(
                f"the request {name} does not exist in the workload cluster",
                hint="run the command `pending -o wide` for the names of requests",
            )
        return csr.read(read_csr), list(_workload_bodies(client))


def _workload_bodies(client: ApiClient) -> Iterator[Body]:
    rbac = "rbac.authorization.k8s.io/v1"
    for path, version, kind in ((_NODES, "v1", "Node"), (_BINDINGS, rbac, "ClusterRoleBinding")):
        for body in list_workload(client, path):
            yield {**body, "apiVersion": version, "kind": kind}
    service = client.get(_SERVICE, accepted=(200, 404))
    if service.status == HTTPStatus.OK:
        # Its kind is fixed here: the answer must not add an object of the management cluster.
        yield {**parse_object(service.content), "apiVersion": "v1", "kind": "Service"}


def _management_bodies(api: ManagementApi, cluster: ClusterKey) -> Iterator[Body]:
    """Yield the Cluster API objects of the namespace, what they refer to, and all claims."""
    for path in (ENDORSEMENT_KEYS, ATTESTED_NODES):
        # A key's holder may be a node of another Cluster.
        yield from api.list_objects(path)
    references: set[Reference] = set()
    for kind in ("Cluster", "Machine", "MachinePool"):
        collection = collection_path(api, CAPI, kind)
        if collection is None:
            continue
        version, plural = collection.rsplit("/", 1)
        for body in api.list_objects(f"{version}/namespaces/{cluster.namespace}/{plural}"):
            references.update(_references(body))
            yield body
    for reference in sorted(references, key=str):
        yield from _referenced(api, reference)


def _references(body: Body) -> Iterator[Reference]:
    spec = body.get("spec") or {}
    bootstrap = spec.get("bootstrap") or {}
    for fields in (spec.get("infrastructureRef"), bootstrap.get("configRef")):
        if not fields:
            continue
        group = fields.get("apiGroup") or str(fields.get("apiVersion", "")).partition("/")[0]
        kind, name = fields.get("kind"), fields.get("name")
        if group and kind and name:
            namespace = body["metadata"]["namespace"]
            yield Reference(group=group, kind=kind, namespace=namespace, name=name)


def _referenced(api: ManagementApi, reference: Reference) -> Iterator[Body]:
    is_bootstrap = reference.group == "bootstrap.cluster.x-k8s.io"
    if is_bootstrap and (reference.group, reference.kind) != KUBEADM_CONFIG:
        return
    path = collection_path(api, reference.group, reference.kind)
    if path is None:
        return
    version, plural = path.rsplit("/", 1)
    path = f"{version}/namespaces/{reference.namespace}/{plural}/{reference.name}"
    response = api.find(path)
    if response is not None:
        yield json.loads(response.content)


def _dump(bodies: list[Body]) -> Dump:
    try:
        return Dump(bodies)
    except FilesInvalid as e:
        raise ServerUnavailable("\n".join(e.problems)) from e


def _challenge_keys(session: Session) -> ChallengeKeys:
    """Read the Secret with the challenge keys, with which answers can be forged."""
    namespace = session.arguments.signer_namespace
    secret = read_named_secret(session.api, namespace, SECRET_NAME)
    if secret is None:
        raise Rejected(
            f"the Secret {namespace}/{SECRET_NAME} does not exist",
            hint="name the namespace of the signer with --signer-namespace",
        )
    try:
        return keys_from_secret(secret, session.now)
    except AttestationError as e:
        raise ServerUnavailable(e.message) from e
