"""Whether the signer runs and which Clusters it serves, as its Leases and policies say."""

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from signer.kinds import resources
from signer.kinds.policy import POLICIES
from signer.kube.leases import Lease
from signer.kube.transport.client import Request
from signer.operator_cli.checks.findings import FindingResult
from signer.operator_cli.checks.signer_checks import check_policies, check_served, check_signer
from signer.operator_cli.management import signer_state
from signer.operator_cli.management.signer_state import SignerState, read_signer_state
from tests.builders.operator_clusters import CLUSTER
from tests.builders.operator_snapshot import KEY, NODE, snapshot
from tests.builders.replica_leases import lease_body, replica_lease
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import management_api

NAMESPACE = "node-attestation-system"
LEASES = resources.LEASES.collection_path(NAMESPACE)
NOW = datetime(2026, 11, 22, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signer_state, "_WATCH_SECONDS", 0.0)


class Management(FakeCluster):
    """A management cluster with Leases of replicas."""

    def store(self, *leases: Lease, steps: timedelta = timedelta()) -> None:
        """Store Leases; `steps` is how much their times change between two reads."""
        self.put(LEASES, *map(lease_body, leases))

        def renew(_: Request) -> None:
            for body in self.objects.values():
                renewed = datetime.fromisoformat(body["spec"]["renewTime"]) + steps
                body["spec"]["renewTime"] = renewed.isoformat()

        if steps:
            self.intercept(renew, "GET", LEASES, times=inf, skip=1)


def read(management: FakeCluster) -> SignerState:
    return read_signer_state(management_api(management), NAMESPACE, NOW)


def test_replica_that_renewed_its_lease_a_moment_ago_runs() -> None:
    management = Management()
    management.store(
        replica_lease(renewed=NOW - timedelta(seconds=3)),
        replica_lease("killed", renewed=NOW - timedelta(minutes=5)),
    )
    state = read(management)
    assert (state.live, state.has_replica("any")) == (frozenset({"one"}), True)
    assert check_signer(state, None, NOW).result is FindingResult.OK


def test_finding_says_since_when_no_replica_serves() -> None:
    management = Management()
    management.store(
        replica_lease(renewed=NOW - timedelta(minutes=5)),
        replica_lease("other", renewed=NOW - timedelta(minutes=7)),
    )
    finding = check_signer(read(management), snapshot(), NOW)
    assert finding.result is FindingResult.PROBLEM
    since = "no replica has served since 2026-11-21T23:55:00Z (5m ago)"
    assert finding.message == f"{since}: no node can join or renew"


@pytest.mark.parametrize("offset", [timedelta(hours=-2), timedelta(hours=2)])
def test_lease_that_changes_counts_whatever_its_clock_says(offset: timedelta) -> None:
    """The clock of the operator's machine or of the signer may be wrong."""
    management = Management()
    management.store(replica_lease(renewed=NOW + offset), steps=timedelta(seconds=2))
    assert read(management).has_replica()


def test_stopped_signer_is_dated_by_the_last_certificate() -> None:
    """A replica that was stopped has deleted its Lease."""
    finding = check_signer(read(Management()), snapshot(), NOW + timedelta(hours=3))
    assert NODE.last_attested == NOW
    assert finding.message.startswith(
        "no replica has a Lease; the last certificate was issued 2026-11-22T00:00:00Z (3h ago)"
    )


def test_claim_that_its_key_does_not_confirm_dates_nothing() -> None:
    """A tenant may write AttestedNodes of its namespace."""
    finding = check_signer(read(Management()), snapshot(held_by=None), NOW)
    assert KEY in snapshot().keys
    assert "issued" not in finding.message


def test_missing_permission_is_neither_yes_nor_no() -> None:
    management = FakeCluster()
    management.intercept(403, "GET", times=inf)
    state = read(management)
    assert state.of_cluster(CLUSTER) == {}
    finding = check_signer(state, snapshot(), NOW)
    assert (finding.result, "403" in finding.message) == (FindingResult.UNKNOWN, True)


def test_replica_of_one_namespace_serves_no_other() -> None:
    management = Management()
    management.store(replica_lease(namespace="team-b"))
    state = read(management)
    assert state.has_replica()
    assert state.of_cluster(CLUSTER)["state"] == "NoReplica"


OTHER = {"namespace": "x", "name": "y"}
COUNTS = {"selectedClusters": 2, "clusters": [{**OTHER, "state": "Served"}]}
SERVED = {"status": {**COUNTS, "clustersLeftOut": 0}}
LEFT_OUT = {"status": {**COUNTS, "clustersLeftOut": 1}}
UNREADABLE = {"namespace": "team-a", "name": "c1", "state": "KubeconfigRefused", "message": "no CA"}
REFUSED = {"status": {"selectedClusters": 1, "clusters": [UNREADABLE]}}
OF_OTHERS = {"spec": {"clusterRef": OTHER}, "status": {"clusters": []}}


@pytest.mark.parametrize(
    ("policies", "state"),
    [
        ([SERVED], "Served"),
        ([LEFT_OUT], None),
        ([{"status": COUNTS}], None),
        ([REFUSED], "KubeconfigRefused"),
        ([SERVED, REFUSED], "PolicyConflict"),
        ([{}], None),
        ([], "PolicyMissing"),
        ([OF_OTHERS], "PolicyMissing"),
    ],
    ids=[
        "not listed",
        "left out",
        "not counted",
        "listed",
        "two policies",
        "not written",
        "no policy",
        "of others",
    ],
)
def test_state_of_a_cluster_is_what_the_signer_wrote(
    policies: list[dict[str, Any]], state: str | None
) -> None:
    management = Management()
    management.store(replica_lease())
    for number, policy in enumerate(policies):
        metadata = {"name": f"policy-{number}", "generation": 1}
        management.put(POLICIES.collection_path(), {"metadata": metadata, "spec": {}, **policy})
    found = read(management)
    assert found.of_cluster(CLUSTER).get("state") == state
    findings = [f.result for f in check_served(CLUSTER, found)]
    results = {"Served": FindingResult.OK, None: FindingResult.UNKNOWN}
    assert findings == [results.get(state, FindingResult.PROBLEM)]


READY = {"type": "Ready", "status": "True", "reason": "InForce", "message": "m"}
INVALID = {**READY, "status": "False", "reason": "PolicyInvalid", "message": "spec.x: unknown key"}
NO_POLICY = "PolicyMissing: no Cluster is served: there is no KubeletAttestationPolicy"


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([[READY]], [("p0", FindingResult.OK, "")]),
        ([[INVALID]], [("p0", FindingResult.PROBLEM, "PolicyInvalid: spec.x: unknown key")]),
        ([[]], [("p0", FindingResult.UNKNOWN, "no signer has written its status")]),
        ([], [(NAMESPACE, FindingResult.PROBLEM, NO_POLICY)]),
    ],
    ids=["in force", "refused", "no status", "no policy"],
)
def test_finding_says_which_policies_are_wrong_or_that_there_is_none(
    policies: list[list[dict[str, str]]], expected: list[tuple[str, FindingResult, str]]
) -> None:
    management = Management()
    for number, conditions in enumerate(policies):
        metadata = {"name": f"p{number}", "generation": 1}
        status = {"conditions": conditions}
        body = {"metadata": metadata, "spec": {}, "status": status}
        management.put(POLICIES.collection_path(), body)
    found = list(check_policies(read(management)))
    assert [(each.object, each.result, each.message) for each in found] == expected


def test_policies_that_cannot_be_read_are_not_missing() -> None:
    assert not list(check_policies(SignerState(namespace=NAMESPACE, problem="it may not list")))
