"""The status of a KubeletAttestationPolicy: whether it is in force, and its Clusters.

Replicas share the Clusters and the status. Each knows the states of its own Clusters, and reads
the other states from the status. It writes all states, under the resourceVersion that it read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from common.formats.strict_json import format_time
from signer.clusters.connection_problem import CONNECTING
from signer.controller.policies.object_reader import PolicyState
from signer.controller.policies.sync import PolicySync
from signer.controller.reports.cluster_state import ClusterReport, in_order
from signer.errors import PolicyConflict, PolicyInvalid
from signer.fairness.outbox import Outbox
from signer.inventory.custom_resources.policy_object import (
    SERVED,
    PolicyClient,
    PolicyObject,
    StoredStates,
)

_MAX_CLUSTERS: Final = 100
"""Clusters in a status, which stays below 200 KiB. The counts are of all."""
_MAX_NAMED: Final = 3
"""Clusters in the message of a condition."""
_MAX_TEXT: Final = 1024
_REPEAT_SECONDS: Final = 30.0
"""Seconds until a replica writes a status again that another replica has overwritten. Two replicas
differ while both serve a Cluster and only one reaches it."""


class PolicyStatuses:
    """Writes each status when it changes; only one thread may call `write_all` and `write`."""

    def __init__(self, writer: PolicyClient, monotonic: Callable[[], float]) -> None:
        self._writer = writer
        self._monotonic = monotonic
        self._outbox = Outbox("status of a policy not written", "policy", monotonic)
        self._written: dict[str, tuple[Mapping[str, Any], float]] = {}
        """By UID: what was written last without its times, and when."""

    def write_all(  # noqa: PLR0913 - the last two say what this replica knows
        self,
        policies: PolicySync,
        own: Sequence[ClusterReport],
        others: Sequence[ClusterReport],
        watched_namespace: str,
        now: datetime,
        *,
        counts: bool,
    ) -> None:
        """Write the status of each object that was read.

        `own` are the Clusters that this replica serves; `counts` says whether it counts Clusters.
        """
        states = policies.states()
        writes = []
        for policy, state in states:
            reports = [*own, *stored_reports(policy, others, watched_namespace)]
            status = build_status(policy, state, reports, now, counts=counts)
            writes.append((policy.name, partial(self.write, policy, status)))
        self._outbox.write(writes)
        self._forget_others(policy for policy, _ in states)

    def write(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Write a status, unless the object has it, or another replica has just replaced it."""
        if policy.status == status:
            return
        content, now = _without_times(status), self._monotonic()
        last, written = self._written.get(policy.uid, ({}, 0.0))
        if last == content and now - written < _REPEAT_SECONDS:
            return
        if self._writer.write_status(policy, status):
            self._written[policy.uid] = (content, now)

    def _forget_others(self, policies: Iterable[PolicyObject]) -> None:
        """Forget the policies that no longer exist."""
        uids = {policy.uid for policy in policies}
        self._written = {uid: last for uid, last in self._written.items() if uid in uids}


def stored_reports(
    policy: PolicyObject, others: Iterable[ClusterReport], watched_namespace: str
) -> Iterator[ClusterReport]:
    """Yield the reports of Clusters that other replicas serve, with the states that they wrote.

    Entries outside of the watched namespace, if there is one, are kept.
    """
    stored = StoredStates(policy.status)
    unknown = {"state": CONNECTING.reason, "message": CONNECTING.message}
    for report in others:
        # The replica that serves it counts what has no entry; here it counts as served.
        entry = stored.get(report.key) or (unknown if stored.lists_all else {"state": SERVED})
        state, message = entry["state"], entry.get("message", "")
        yield replace(report, state=state, message=message) if report.served else report
    for key, entry in stored.entries.items():
        if watched_namespace not in {"", key.namespace}:
            yield ClusterReport(
                key=key,
                uid="",
                policies=(policy.name,),
                state=entry["state"],
                message=entry.get("message", ""),
            )


def build_status(
    policy: PolicyObject,
    state: PolicyState,
    reports: Iterable[ClusterReport],
    now: datetime,
    *,
    counts: bool = True,
) -> dict[str, Any]:
    """Return the status of a policy; `reports` are those of all Clusters.

    A replica that does not count has no reports of Clusters of other namespaces that the status
    does not list. It keeps the number that another replica has written.
    """
    own = in_order(report for report in reports if policy.name in report.policies)
    unserved = [report for report in own if not report.served]
    ready = _ready(policy, state, own)
    selected = len(own) if counts else max(len(own), policy.status.get("selectedClusters", 0))
    expiring = [report for report in own if report.message]
    message = "; ".join(filter(None, (f"{selected} Clusters are served", _summarize(expiring))))
    served = ("True", "AllServed", message)
    if unserved:
        served = ("False", "ClustersNotServed", _summarize(unserved))
    status: dict[str, Any] = {
        "observedGeneration": policy.generation,
        "selectedClusters": selected,
        "servedClusters": selected - len(unserved),
        "clusters": [report.entry(_MAX_TEXT) for report in own[:_MAX_CLUSTERS]],
        "clustersLeftOut": sum(not r.served or bool(r.message) for r in own[_MAX_CLUSTERS:]),
        "conditions": [
            _condition(policy, "Ready", ready, now),
            _condition(policy, "ClustersServed", served, now),
        ],
    }
    if state.in_force is not None:
        status["activeGeneration"] = state.in_force
    return status


def _ready(
    policy: PolicyObject, state: PolicyState, own: Sequence[ClusterReport]
) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready."""
    if state.problems:
        rest = (
            "its Clusters wait"
            if state.in_force is None
            else f"generation {state.in_force} stays in force"
        )
        return "False", PolicyInvalid.reason, f"{'; '.join(state.problems)}; {rest}"
    conflicts = [report for report in own if len(report.policies) > 1]
    if conflicts:
        return "False", PolicyConflict.reason, _summarize(conflicts)
    named = policy.policy.clusters and policy.policy.clusters.cluster
    if named and not own:
        message = f"no Cluster {named} exists: correct clusterRef"
        return "False", "ClusterNotFound", message
    return "True", "InForce", "the policy is in force"


def _summarize(reports: Sequence[ClusterReport]) -> str:
    named = "; ".join(f"{report.key}: {report.message}" for report in reports[:_MAX_NAMED])
    more = len(reports) - _MAX_NAMED
    return f"{named}; and {more} more" if more > 0 else named


def _condition(
    policy: PolicyObject, kind: str, content: tuple[str, str, str], now: datetime
) -> dict[str, Any]:
    status, reason, message = content
    since = format_time(now)
    for earlier in policy.status.get("conditions") or ():
        if (earlier.get("type"), earlier.get("status")) == (kind, status):
            since = earlier.get("lastTransitionTime", since)
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[: 32 * _MAX_TEXT],
        "observedGeneration": policy.generation,
        "lastTransitionTime": since,
    }


def _without_times(status: Mapping[str, Any]) -> dict[str, Any]:
    conditions = [
        {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        for condition in status["conditions"]
    ]
    return {**status, "conditions": conditions}
