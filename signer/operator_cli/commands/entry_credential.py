"""`entry-credential`: prints the kubeconfig with which nodes of a Cluster come back at any time.

Its credential is for all nodes and does not expire. So before it is printed, the API server must
show that the admission policy of entry-credential.yaml limits it.
"""

import json
from contextlib import closing
from http import HTTPStatus
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import Waiting
from common.names import CLIENT_SIGNER, CLIENT_USAGES
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.kinds.resources import CSRS, SECRETS
from signer.kube.secrets import read_secret
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import parse_kubeconfig
from signer.operator_cli.errors import EXIT_OK, Rejected
from signer.operator_cli.policies import read_policy_objects
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.kubeconfigs import (
    build_kubeconfig,
    build_request,
    read_administrator,
)
from signer.operator_cli.workloads.workload_reader import open_client, reading_workload
from signer.verify.requests.request import ENTRY_GROUP

_SECRET: Final = SECRETS.object_path("entry-token", "node-attestation-entry")
_FOREIGN_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_APPLY: Final = "apply packaging/signer/entry-credential.yaml in the workload cluster"


def run(session: Session) -> int:
    """Print the kubeconfig; nothing is printed unless the credential is limited."""
    [cluster] = session.snapshot().clusters
    with (
        session.progress("reading the entry credential from the workload cluster"),
        reading_workload(cluster),
    ):
        connection = read_administrator(session.api, cluster)
        with closing(open_client(cluster, connection)) as client:
            user = {"token": _read_token(client)}
        content = build_kubeconfig(connection, "node-attestation-entry", user)
        with closing(open_client(cluster, parse_kubeconfig(content))) as entry:
            _require_limits(entry)
    _warn_of_policy(session, cluster)
    session.stdout.write(content.decode())
    return EXIT_OK


def _read_token(client: ApiClient) -> str:
    response = client.find(_SECRET)
    if response is None:
        raise Rejected("the workload cluster has no entry credential", hint=_APPLY)
    token = response.read(read_secret).data.get("token")
    if not token:
        raise Rejected(
            "the Secret node-attestation-entry/entry-token has no token yet",
            hint="run the command again; kube-controller-manager writes the token",
        )
    return token.decode("ascii", "replace")


def _require_limits(entry: ApiClient) -> None:
    """Raise `Rejected` unless the credential may create requests for our signer and no other."""
    if _may_request(entry, _FOREIGN_SIGNER):
        raise Rejected(
            "nothing was printed: the admission policy does not limit the entry credential",
            hint=f"{_APPLY}; it is in force after some seconds",
        )
    if not _may_request(entry, CLIENT_SIGNER):
        raise Rejected(f"the entry credential may not request {CLIENT_SIGNER}", hint=_APPLY)


def _may_request(entry: ApiClient, signer_name: str) -> bool:
    """Return whether the API server would create a request; it creates none."""
    body = CSRS.manifest(
        metadata={"generateName": "entry-credential-"},
        spec={
            "signerName": signer_name,
            "request": build_request(ec.generate_private_key(ec.SECP256R1())),
            "usages": sorted(CLIENT_USAGES),
        },
    )
    path = f"{CSRS.collection_path()}?dryRun=All"
    return entry.create(path, body, accepted=(HTTPStatus.CREATED, HTTPStatus.FORBIDDEN)).succeeded


def _warn_of_policy(session: Session, cluster: ClusterObject) -> None:
    """Warn if the policy object of the Cluster does not accept the credential."""
    try:
        policy = read_policy_objects(session.api).for_cluster(cluster.key, cluster.labels)
    except (Rejected, Waiting):
        session.warn(f"the policy of the signer must have {ENTRY_GROUP} in bootstrapGroups")
        return
    if ENTRY_GROUP not in policy.bootstrap_groups:
        groups = json.dumps(sorted({*policy.bootstrap_groups, ENTRY_GROUP}))
        session.warn(f"policy {policy.name} refuses it: set bootstrapGroups to {groups}")
