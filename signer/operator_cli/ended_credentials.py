"""Waits until the certificates of a banned key have ended for writes, for `--now`.

Only the signer writes the credential list of a workload cluster. It does so within seconds after a
ban, if the policy of the Cluster has `renewals.publishCredentials`.
"""

import time
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Final

from signer.inventory.cluster import ClusterObject
from signer.inventory.credential_list import CredentialListClient
from signer.kube.client import ApiClient
from signer.model import AttestedNodeObject
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED
from signer.operator_cli.session import Session
from signer.operator_cli.workloads import Unreachable, for_each_workload

_BINDING: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    "/credentials.attestation.cluster.x-k8s.io"
)
_WAIT_SECONDS: Final = 90.0
"""The signer writes the list within seconds, and at the latest after its round of a minute."""
_POLL_SECONDS: Final = 1.0
_APPLY: Final = "apply packaging/signer/credential-policy.yaml in the workload cluster"


def await_end_of_credentials(session: Session, key_name: str) -> int:
    """Wait for each node that has a certificate with the key; return the exit status.

    Raises `CommandError` if the nodes cannot be read.
    """
    snapshot = session.snapshot()
    nodes = snapshot.nodes_by_key.get(key_name, ())
    clusters = [c for c in snapshot.clusters if any(n.cluster == c.key for n in nodes)]
    results = for_each_workload(session, clusters, partial(_await_in_cluster, nodes))
    if not nodes:
        session.stdout.write("no node is recorded with this key\n")
    problems = {node.cluster: "the Cluster does not exist" for node in nodes}
    for cluster, result in zip(clusters, results, strict=True):
        problems[cluster.key] = result.reason if isinstance(result, Unreachable) else result
    for key, problem in problems.items():
        place = f"Cluster {key.namespace}/{key.name}"
        if problem:
            session.warn(f"{place}: certificates of the node did not end: {problem}")
        else:
            session.stdout.write(f"{place}: the node can no longer write with its certificates\n")
    return EXIT_UNDECIDED if any(problems.values()) else EXIT_OK


def _await_in_cluster(
    nodes: Sequence[AttestedNodeObject], client: ApiClient, cluster: ClusterObject
) -> str:
    """Return why the certificates did not end; empty if they did. Raises `AttestationError`."""
    response = client.get(_BINDING, accepted=(200, 403, 404))
    if response.status != HTTPStatus.OK:
        # Without the file, the signer's kubeconfig may not read the binding.
        return f"the admission policy is not installed: {_APPLY}"
    waiting = [node for node in nodes if node.cluster == cluster.key]
    credentials = CredentialListClient(client)
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        entries = credentials.read()
        if entries is None:
            return f"the ConfigMap of the admission policy does not exist: {_APPLY}"
        waiting = [node for node in waiting if not _has_ended(node, entries.get(node.node_name))]
        if not waiting:
            return ""
        time.sleep(_POLL_SECONDS)
    return (
        f"the signer has not written the list within {_WAIT_SECONDS:.0f} s: it must run, and the"
        " policy of the Cluster must have renewals.publishCredentials: true"
    )


def _has_ended(node: AttestedNodeObject, entry: str | None) -> bool:
    """Return whether the list has none of the node's certificates; absence restricts nothing.

    A node that has attested with another TPM meanwhile has an entry with other certificates.
    """
    return entry is not None and not set(node.credential_ids).intersection(entry.split())
