"""`explain`: replays a request of a live workload cluster, check by check.

It reads what the signer would read, and writes nothing. `node-attestation-signer explain` does
the same with files.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

from common.errors import AttestationError
from signer.explain.command import explain_requests
from signer.explain.manifests import FilesInvalid
from signer.explain.offline_inventory import OfflineObjects
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.cluster_api.references import Reference
from signer.inventory.replica_records.challenge_keys import SECRET_NAME, keys_from_secret
from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.decode import read_as
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import (
    CLUSTER,
    CLUSTER_ROLE_BINDINGS,
    CSRS,
    KUBEADM_CONFIG,
    MACHINE,
    MACHINE_POOL,
    NODES,
    SERVICES,
)
from signer.kube.csrs import read_csr
from signer.kube.discovery import find_resource
from signer.kube.transport.client import ApiClient
from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import Rejected, ServerUnavailable
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.management.snapshot import find_referenced
from signer.operator_cli.output import printable
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import (
    Body,
    connect_workload,
    list_workload,
    read_body,
    read_named_secret,
    reading_workload,
)
from signer.seams import ChallengeKeys

_UNREADABLE: Final = "correct or delete the object: the signer decides nothing in its namespace"


def run(session: Session) -> int:
    """Print the report; the exit status is the verdict."""
    arguments = session.arguments
    snapshot = session.snapshot()
    [cluster] = snapshot.clusters
    with session.progress("reading the objects that the verdict depends on"):
        csr, workload = _read_workload(session.api, cluster, arguments.csr)
        bodies = [*_management_bodies(session.api, cluster.key), *workload]
        keys = _challenge_keys(session) if arguments.challenge_keys else None
    try:
        report, status = explain_requests(
            [csr],
            OfflineObjects(bodies),
            cluster=cluster.key,
            challenge_keys=keys,
            now=session.now,
            json=arguments.output == "json",
        )
    except FilesInvalid as error:
        raise ServerUnavailable("\n".join(error.problems)) from error
    if arguments.output == "table":
        # Names in the report are the tenant's.
        report = "\n".join(map(printable, report.split("\n")))
    session.stdout.write(report)
    return status


def _read_workload(api: ManagementApi, cluster: ClusterObject, name: str) -> tuple[Csr, list[Body]]:
    """Return the request, and the objects of the workload cluster."""
    with reading_workload(cluster), closing(connect_workload(api, cluster)) as client:
        csr = client.find(CSRS.object_path(name))
        if csr is None:
            raise Rejected(
                f"the request {name} does not exist in the workload cluster",
                hint="run the command `pending -o wide` for the names of requests",
            )
        return csr.read(read_csr), list(_workload_bodies(client))


def _workload_bodies(client: ApiClient) -> Iterator[Body]:
    # Each kind is fixed here: an answer must not add an object of the management cluster.
    for resource in (NODES, CLUSTER_ROLE_BINDINGS):
        for body in list_workload(client, resource):
            yield body | resource.manifest()
    service = client.find(SERVICES.object_path("kubernetes", "default"))
    if service is not None:
        yield service.read(read_body) | SERVICES.manifest()


def _management_bodies(api: ManagementApi, cluster: ClusterKey) -> Iterator[Body]:
    """Yield the Cluster API objects of the namespace, what they refer to, policies and claims."""
    yield from api.list_objects(POLICIES.collection_path())
    yield from api.list_objects(ENDORSEMENT_KEYS.collection_path())
    # A key's holder may be a node of another Cluster. What cannot be read there is not this one's.
    left_out: list[Unreadable] = []
    yield from api.list_objects(ATTESTED_NODES.collection_path(), left_out=left_out)
    for each in left_out:
        if each.key.startswith(f"{cluster.namespace}/"):
            raise ServerUnavailable(f"left out: {each}", hint=_UNREADABLE)
    references: set[Reference] = set()
    for kind in (CLUSTER, MACHINE, MACHINE_POOL):
        resource = find_resource(api, kind)
        if resource is None:
            continue
        for body in api.list_objects(resource.collection_path(cluster.namespace)):
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
    is_bootstrap = reference.group == KUBEADM_CONFIG[0]
    if is_bootstrap and (reference.group, reference.kind) != KUBEADM_CONFIG:
        return
    response = find_referenced(api, reference)
    if response is not None:
        yield response.read(read_as(dict))


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
    except AttestationError as error:
        raise ServerUnavailable(error.message) from error
