"""The certificates of a banned key: until when they are valid, and how `--now` awaits their end.

Only the signer writes the list of ended certificates of a workload cluster. It does so within
seconds after a ban.
"""

import time
from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Final

from common.errors import AttestationError
from common.node_identity import KEY_DIGITS
from signer.claims.ended_entry import EndedEntry
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.ended_certificates import POLICY_NAMES, EndedCertificatesClient
from signer.kinds.attested_node import (
    ATTESTED_NODES,
    AttestedNodeObject,
    attested_node_name,
    read_attested_node,
)
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kinds.resources import ADMISSION_POLICY_BINDINGS
from signer.kube.transport.client import ApiClient
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, CommandError
from signer.operator_cli.keys.endorsement_key_objects import KeyBody, holder_of, read_key_body
from signer.operator_cli.output import age, time_text
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import READ_SECONDS, for_each_workload

NodeName = tuple[ClusterKey, str]
_WAIT_SECONDS: Final = 90.0
"""The signer writes the list within seconds, and at the latest after its round of a minute."""
_POLL_SECONDS: Final = 1.0
_EFFECT_SECONDS: Final = 2.0
"""Each API server of the cluster takes a change of a policy within a second."""


def describe_certificate(session: Session, body: KeyBody, node: NodeName | None) -> str:
    """Return, as a sentence, until when the certificate of a banned key's node is valid.

    The time is what the AttestedNode says. A user who may not read it gets no time. `node` is what
    the operator named.
    """
    holder = holder_of(body)
    if holder is None and node is None:
        return (
            "No node is recorded for the key, so the ban ends no certificate: name its node with"
            " --node NAMESPACE/CLUSTER/NODE if there is one."
        )
    name = node[1] if holder is None and node is not None else (holder or {})["nodeName"]
    claim = find_claim(session, body)
    end: datetime | None = None if claim is None else claim.not_after
    until = "until it expires"
    if end is not None:
        if end <= session.now:
            return f"The last certificate of node {name} expired {time_text(end)}."
        until = f"until {time_text(end)} (for {age(time_text(session.now), end)})"
    return (
        f"For writes, the certificates of node {name} end within seconds; for reads, the present"
        f" one stays valid {until}."
    )


def find_claim(session: Session, body: KeyBody) -> AttestedNodeObject | None:
    """Return the AttestedNode of the node that holds a key, `None` if the user cannot read it."""
    holder = holder_of(body)
    if holder is None:
        return None
    cluster = ClusterKey(namespace=holder["clusterNamespace"], name=holder["clusterName"])
    name = attested_node_name(cluster, holder["nodeName"])
    try:
        response = session.api.find(ATTESTED_NODES.object_path(name, cluster.namespace))
        node = None if response is None else response.read(read_attested_node)
    except (CommandError, AttestationError):
        return None
    named = body["metadata"]["name"]
    return node if node is not None and node.endorsement_key == named else None


def await_end_of_credentials(session: Session, key_name: str) -> int:
    """Wait until the nodes of a banned key cannot write; return the exit status.

    Raises `CommandError` if the key or the Clusters cannot be read.
    """
    key = read_endorsement_key(read_key_body(session.api, key_name) or {})
    named = (each for each in (key.held_by, key.banned_node) if each is not None)
    names = {(each.cluster, each.node_name) for each in named}
    clusters = [c for c in session.snapshot().clusters if any(c.key == each for each, _ in names)]
    # The deadline of the client is for more than the wait for the list.
    seconds = READ_SECONDS + _WAIT_SECONDS
    results = for_each_workload(
        session, clusters, partial(_await_in_cluster, key_name, names), seconds=seconds
    )
    if not names:
        session.stdout.write("no node is recorded for this key: no certificate has ended\n")
    problems = {cluster: "the Cluster does not exist" for cluster, _ in names}
    problems |= {cluster.key: str(result) for cluster, result in results}
    for cluster, problem in problems.items():
        place = f"Cluster {cluster}"
        if problem:
            session.warn(f"{place}: certificates of the node did not end: {problem}")
        else:
            session.stdout.write(f"{place}: the node can no longer write with its certificates\n")
    return EXIT_UNDECIDED if any(problems.values()) else EXIT_OK


def _await_in_cluster(
    key_name: str, names: Collection[NodeName], client: ApiClient, cluster: ClusterObject
) -> str:
    """Return why the certificates did not end; empty if they did. Raises `AttestationError`."""
    waiting = [name for key, name in names if key == cluster.key]
    ended = EndedCertificatesClient(client)
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        listed = ended.read()
        waiting = [name for name in waiting if not _has_ended(key_name, listed.entry(name))]
        if not waiting and _are_in_force(client, POLICY_NAMES[: len(listed.parts)]):
            time.sleep(_EFFECT_SECONDS)
            return ""
        time.sleep(_POLL_SECONDS)
    return (
        f"the signer has not listed them within {_WAIT_SECONDS:.0f} s: it must run, serve the"
        " Cluster and have the rights of workload-rbac.yaml there"
    )


def _has_ended(key_name: str, entry: EndedEntry | None) -> bool:
    """Return whether no certificate of a key may write; absence restricts nothing."""
    return entry is not None and (entry.is_ban or entry.key != key_name[:KEY_DIGITS])


def _are_in_force(client: ApiClient, names: Collection[str]) -> bool:
    """Return whether each policy has its binding, without which it does nothing."""
    paths = (ADMISSION_POLICY_BINDINGS.object_path(name) for name in names)
    return all(client.find(path) is not None for path in paths)
