"""What an operator is shown: Clusters that there is no space for.

A tenant may create any number of Clusters that are not served. 101 of them filled the status of a
policy, and the failure of another tenant's Cluster looked as if it were served: `clusters` said so,
`doctor` found nothing, and `problems` was empty. What is not listed is unknown, and the namespaces
take turns in each list that has an end.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from signer.controller.observability.metrics import collect_unreadable
from signer.controller.policies.object_reader import PolicyState
from signer.controller.reports.cluster_state import ClusterReport
from signer.controller.reports.policy_status import build_status
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.checks.findings import FindingResult
from signer.operator_cli.checks.signer_checks import check_served
from signer.operator_cli.management.signer_state import SignerState
from tests.builders.operator_clusters import CLUSTER
from tests.builders.replica_leases import replica_lease

NOW = datetime(2026, 11, 22, tzinfo=UTC)
REFUSED = "KubeconfigRefused"


def reports(unserved: int, of_victim: str, namespace: str) -> list[ClusterReport]:
    """Return a tenant's Clusters that are not served, and the one of the victim."""
    keys = [ClusterKey(namespace=namespace, name=f"c{number:03}") for number in range(unserved)]
    states = [*((key, REFUSED) for key in keys), (CLUSTER.key, of_victim)]
    return [
        ClusterReport(key=key, uid=str(key), policies=("all",), state=state, message="m" * 300)
        if state == REFUSED
        else ClusterReport(key=key, uid=str(key), policies=("all",), state=state)
        for key, state in states
    ]


def policy(**more: Any) -> Any:  # noqa: ANN401 # fields of the object
    metadata = {"name": "all", "uid": "u", "resourceVersion": "1", "generation": 1}
    return read_policy({"metadata": metadata, "spec": {}, **more})


def read(own: list[ClusterReport]) -> SignerState:
    """Return what operators read."""
    status = build_status(policy(), PolicyState(problems=(), in_force=1), own, NOW)
    leases = [replica_lease("one")]
    return SignerState(
        namespace="s", leases=leases, live=frozenset({"one"}), policies=[policy(status=status)]
    )


@pytest.mark.parametrize("namespace", ["a-before", "z-after"])
def test_many_clusters_of_one_tenant_hide_no_other_tenants_failure(namespace: str) -> None:
    state = read(reports(150, REFUSED, namespace))
    assert state.of_cluster(CLUSTER)["state"] == REFUSED
    [finding] = check_served(CLUSTER, state)
    assert finding.result is FindingResult.PROBLEM


def test_what_is_not_listed_beside_failures_is_unknown() -> None:
    state = read(reports(150, "Served", "a-before"))
    assert state.of_cluster(CLUSTER) == {}
    [finding] = check_served(CLUSTER, state)
    assert finding.result is FindingResult.UNKNOWN


def test_the_good_case_is_served() -> None:
    state = read(reports(3, "Served", "a-before"))
    assert state.of_cluster(CLUSTER)["state"] == "Served"
    [finding] = check_served(CLUSTER, state)
    assert finding.result is FindingResult.OK


def test_many_unreadable_objects_of_one_tenant_hide_no_others() -> None:
    """One tenant had 100 samples of the metric, so no alert named the other objects."""
    mine = {("tenant", f"tenant/c{number}", "Nodes"): 2 for number in range(120)}
    others = {("", "", "EndorsementKeys"): 1, ("victim", "", "AttestedNodes"): 1}
    [metric] = collect_unreadable(lambda: mine | others)
    shown = [tuple(sample.labels.values()) for sample in metric.samples]
    assert shown[0] == ("", "", "EndorsementKeys")
    assert ("victim", "", "AttestedNodes") in shown
    assert len(shown) == 100
