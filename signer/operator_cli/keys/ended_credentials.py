"""The certificates of a banned key: until when they are valid, and how `--now` ends them.

Only the signer writes the credential list of a workload cluster. It does so within seconds after a
ban, if the policy of the Cluster has `renewals.publishCredentials`.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Final

from common.errors import AttestationError
from common.names import CREDENTIAL_POLICY
from signer.claims.credential_entry import CredentialEntry
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.credential_list import CredentialListClient
from signer.inventory.custom_resources.claim_objects import read_attested_node
from signer.inventory.kinds import ATTESTED_NODES
from signer.kube.resources import ADMISSION_POLICY_BINDINGS
from signer.kube.transport.client import ApiClient
from signer.model import AttestedNodeObject, ClusterKey, attested_node_name
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, CommandError
from signer.operator_cli.keys.endorsement_key_objects import KeyBody, holder_of
from signer.operator_cli.output import age, time_text
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import READ_SECONDS, for_each_workload

_BINDING: Final = ADMISSION_POLICY_BINDINGS.object_path(CREDENTIAL_POLICY)
_WAIT_SECONDS: Final = 90.0
"""The signer writes the list within seconds, and at the latest after its round of a minute."""
_POLL_SECONDS: Final = 1.0
_APPLY: Final = "apply packaging/signer/credential-policy.yaml in the workload cluster"


def describe_certificate(session: Session, body: KeyBody) -> str:
    """Return, as a sentence, until when the certificate of a key's node is valid.

    The time is what the AttestedNode says. A user who may not read it gets no time.
    """
    holder = holder_of(body)
    if holder is None:
        return "No node holds the key, so there is no certificate that stays valid."
    cluster = ClusterKey(namespace=holder["clusterNamespace"], name=holder["clusterName"])
    end = _certificate_end(session, cluster, holder["nodeName"], body["metadata"]["name"])
    until = "until it expires"
    if end is not None:
        if end <= session.now:
            return f"The last certificate of node {holder['nodeName']} expired {time_text(end)}."
        until = f"until {time_text(end)} (for {age(time_text(session.now), end)})"
    how = "--now ends it for writes"
    if session.arguments.now:
        how = "for writes it ends as soon as the signer has noticed the ban"
    return f"The present certificate of node {holder['nodeName']} stays valid {until}; {how}."


def warn_if_certificates_stay(session: Session, key_name: str) -> None:
    """Warn, before anything is changed, of each Cluster in which `--now` ends no certificate.

    Raises `CommandError` if the nodes cannot be read.
    """
    clusters, _, _ = _holding(session, key_name)
    for cluster, result in for_each_workload(session, clusters, _problem_of_policy):
        if result:
            session.warn(f"Cluster {cluster.key}: --now will not end certificates: {result}")


def await_end_of_credentials(session: Session, key_name: str) -> int:
    """Wait for the node that holds the key; return the exit status.

    Raises `CommandError` if the nodes cannot be read.
    """
    clusters, nodes, others = _holding(session, key_name)
    # The deadline of the client is for more than the wait for the list.
    seconds = READ_SECONDS + _WAIT_SECONDS
    results = for_each_workload(
        session, clusters, partial(_await_in_cluster, nodes), seconds=seconds
    )
    if others:
        session.warn(
            f"{others} AttestedNodes name the key and do not hold it: the"
            " command does not wait for their nodes (`nodes` shows them as ClaimIncomplete)"
        )
    if not nodes:
        session.stdout.write("no AttestedNode shows a node that holds this key\n")
    problems = {node.cluster: "the Cluster does not exist" for node in nodes}
    problems |= {cluster.key: str(result) for cluster, result in results}
    for key, problem in problems.items():
        place = f"Cluster {key}"
        if problem:
            session.warn(f"{place}: certificates of the node did not end: {problem}")
        else:
            session.stdout.write(f"{place}: the node can no longer write with its certificates\n")
    return EXIT_UNDECIDED if any(problems.values()) else EXIT_OK


def _holding(
    session: Session, key_name: str
) -> tuple[Sequence[ClusterObject], Sequence[AttestedNodeObject], int]:
    """Return the nodes that hold a key with their Clusters, and how many others name the key."""
    snapshot = session.snapshot()
    naming = [node for node in snapshot.nodes if node.endorsement_key == key_name]
    nodes = [node for node in naming if snapshot.holds_key(node)]
    clusters = [c for c in snapshot.clusters if any(n.cluster == c.key for n in nodes)]
    return clusters, nodes, len(naming) - len(nodes)


def _certificate_end(
    session: Session, cluster: ClusterKey, node_name: str, key_name: str
) -> datetime | None:
    """Return when the certificate of a node expires; `None` if that is not recorded."""
    name = attested_node_name(cluster, node_name)
    try:
        response = session.api.find(ATTESTED_NODES.object_path(name, cluster.namespace))
        node = None if response is None else response.read(read_attested_node)
    except (CommandError, AttestationError):
        return None
    return node.not_after if node is not None and node.endorsement_key == key_name else None


def _problem_of_policy(client: ApiClient, _: ClusterObject) -> str:
    """Return why the admission policy is not in force; empty if it is."""
    if client.get(_BINDING, accepted=(200, 403, 404)).status != HTTPStatus.OK:
        # Without the file, the signer's kubeconfig may not read the binding.
        return f"the admission policy is not installed: {_APPLY}"
    return ""


def _await_in_cluster(
    nodes: Sequence[AttestedNodeObject], client: ApiClient, cluster: ClusterObject
) -> str:
    """Return why the certificates did not end; empty if they did. Raises `AttestationError`."""
    problem = _problem_of_policy(client, cluster)
    if problem:
        return problem
    waiting = [node for node in nodes if node.cluster == cluster.key]
    credentials = CredentialListClient(client)
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        listed = credentials.read()
        if listed is None:
            return f"the ConfigMap of the admission policy does not exist: {_APPLY}"
        waiting = [node for node in waiting if not _has_ended(node, listed.entry(node.node_name))]
        if not waiting:
            return ""
        time.sleep(_POLL_SECONDS)
    return (
        f"the signer has not written the list within {_WAIT_SECONDS:.0f} s: it must run, and the"
        " policy of the Cluster must have renewals.publishCredentials: true"
    )


def _has_ended(node: AttestedNodeObject, entry: CredentialEntry | None) -> bool:
    """Return whether the list has none of the node's certificates; absence restricts nothing.

    A node that has attested with another TPM meanwhile has an entry with other certificates.
    """
    if entry is None or not entry.ids:
        return entry is not None
    return bool(node.credential_ids) and not any(map(entry.names, node.credential_ids))
