"""Why each Cluster is served or not: pure functions over Clusters, policies and connections.

A Cluster that neither a policy selects nor an annotation names is not the signer's, and has no
report.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from common.names import CLIENT_SIGNER
from common.printed_command import printed_command
from signer.clusters.connection_problem import CONNECTING, FORBIDDEN, ConnectionProblem
from signer.errors import (
    KubeconfigRefused,
    MultipleClientSigners,
    PolicyConflict,
    PolicyInvalid,
    PolicyMissing,
)
from signer.fairness.turns import in_turn
from signer.inventory.cluster_api.cluster import CLIENT_SIGNER_ANNOTATION, ClusterObject
from signer.inventory.custom_resources.policy_object import SERVED
from signer.inventory.unreadable_kinds import CLUSTER_MESSAGE
from signer.kinds.cluster import ClusterKey
from signer.kube.unreadable import UnreadableObject
from signer.policy.policy import PolicySet, RefusedPolicy

NOT_OPTED_IN: Final = "NotOptedIn"
CLIENT_SIGNER_UNKNOWN: Final = "ClientSignerUnknown"
"""States that are no reason of an error; all states are in docs/policies.md."""
TRANSIENT: Final = frozenset({CONNECTING.reason})
"""States that are reported only if they last."""
_EXPIRY_NOTICE: Final = timedelta(days=30)
"""As the alert NodeAttestationKubeconfigExpires of the chart."""
_OPT_IN: Final = f"{CLIENT_SIGNER_ANNOTATION}: {CLIENT_SIGNER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReport:
    """Whether one Cluster is served, and the next step of the operator if it is not."""

    key: ClusterKey
    uid: str
    policies: tuple[str, ...]
    """Names of the policies that are for this Cluster; more than one is a conflict."""
    state: str
    message: str = ""
    """Cause and next step for the operator; empty if there is nothing to do."""
    reachable: bool = False
    """Whether its API server answers."""
    credential_expiry: datetime | None = field(default=None, compare=False)
    """When the client certificate of its kubeconfig Secret expires. A new one is no change that
    users of the Cluster have to see."""

    @property
    def served(self) -> bool:
        """Return whether requests of this Cluster are decided."""
        return self.state == SERVED

    def entry(self, max_message: int) -> dict[str, str]:
        """Return the report as the status of a policy lists it."""
        entry = {"namespace": self.key.namespace, "name": self.key.name, "state": self.state}
        return entry | ({"message": self.message[:max_message]} if self.message else {})


def in_order(reports: Iterable[ClusterReport]) -> list[ClusterReport]:
    """Return first what is not served, then what has a message; in each, the namespaces in turn."""
    by_name = sorted(reports, key=lambda r: (r.key.namespace, r.key.name))
    turns = in_turn(by_name, lambda r: f"{r.served}/{not r.message}/{r.key.namespace}")
    return sorted(turns, key=lambda r: (r.served, not r.message))


def render_reports(
    own: Iterable[ClusterReport],
    others: Iterable[ClusterReport],
    replica: Callable[[ClusterKey], str | None],
) -> bytes:
    """Return all Clusters as JSON, each with its replica, sorted by namespace and name.

    Only the replica that serves a Cluster knows its state.
    """
    states = {
        report.key: {
            "state": report.state,
            "message": report.message,
            "reachable": report.reachable,
        }
        for report in own
    }
    documents = [
        {
            "namespace": report.key.namespace,
            "name": report.key.name,
            "replica": replica(report.key),
            **states.get(report.key, {}),
            "policies": report.policies,
        }
        for report in sorted((*own, *others), key=lambda r: (r.key.namespace, r.key.name))
    ]
    return json.dumps(documents, indent=1).encode()


def report_cluster(
    cluster: ClusterObject,
    signers: frozenset[str],
    policies: PolicySet,
    connection: ConnectionProblem | None,
) -> ClusterReport | None:
    """Return the report of one Cluster; `None` if it does not concern the signer.

    `signers` are the client signers that the Cluster has opted in to. `connection` counts only if
    the signer of this program is among them.
    """
    found = policies.selecting(cluster.key, cluster.labels)
    names = tuple(sorted(policy.name for policy in found))
    opted_in = CLIENT_SIGNER in signers
    if not opted_in and not signers and all(policy.clusters is None for policy in found):
        return None
    reachable = opted_in and (connection is None or connection.reachable)
    if not opted_in:
        state, message = _not_opted_in(signers)
    elif len(signers) > 1:
        state = MultipleClientSigners.reason
        message = f"the Cluster names several client signers: leave only {CLIENT_SIGNER}"
    elif len(found) != 1:
        state, message = _policy_problem(names)
    elif isinstance(found[0], RefusedPolicy):
        state = PolicyInvalid.reason
        message = f"the policy {names[0]} is invalid: {found[0].problems[0]}"
    elif connection is not None:
        state, message = connection.reason, connection.message
    else:
        state, message = SERVED, ""
    return ClusterReport(
        key=cluster.key,
        uid=cluster.uid,
        policies=names,
        state=state,
        message=message,
        reachable=reachable,
    )


def add_unreadable(report: ClusterReport, objects: Sequence[UnreadableObject]) -> ClusterReport:
    """Return a report with the objects of the workload cluster that cannot be read."""
    if not objects or report.message:
        return report
    first = min(objects, key=lambda each: (each.plural, each.unreadable.key))
    named = f"{first.plural}: {first.unreadable.key} ({first.unreadable.problem})"
    more = f", and {len(objects) - 1} more" if len(objects) > 1 else ""
    message = f"{CLUSTER_MESSAGE} {named}{more}: correct or delete them"
    return replace(report, message=message)


def add_expiry(report: ClusterReport, expiry: datetime | None, now: datetime) -> ClusterReport:
    """Return a report with the expiry of the kubeconfig.

    A served Cluster shows it in advance. After it, an API server only says that it does not know
    the signer, so its answer is not shown.
    """
    state, message = report.state, report.message
    if expiry is not None:
        of_certificate = "the client certificate in the kubeconfig Secret"
        command = printed_command("run kubectl attestation kubeconfig", str(report.key))
        if report.served and expiry - now < _EXPIRY_NOTICE:
            message = f"{of_certificate} expires on {expiry:%F}: {command}"
        elif state == FORBIDDEN and expiry <= now:
            state = KubeconfigRefused.reason
            message = f"{of_certificate} expired on {expiry:%F}: {command}"
    return replace(report, credential_expiry=expiry, state=state, message=message)


def _not_opted_in(signers: frozenset[str]) -> tuple[str, str]:
    if signers:
        named = ", ".join(sorted(signers))[:200]
        return CLIENT_SIGNER_UNKNOWN, f"the client signer {named} is unknown: set {_OPT_IN}"
    return NOT_OPTED_IN, f"a policy selects the Cluster: set the annotation {_OPT_IN}"


def _policy_problem(names: tuple[str, ...]) -> tuple[str, str]:
    if not names:
        return (
            PolicyMissing.reason,
            "no policy is for this Cluster: create a KubeletAttestationPolicy that selects it",
        )
    return (
        PolicyConflict.reason,
        f"the policies {', '.join(names)} are for this Cluster: change all but one",
    )
