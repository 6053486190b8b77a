"""Each Cluster that is not served is reported, with the next step of the operator."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest

from common.formats.strict_json import format_time
from common.names import CLIENT_SIGNER
from signer.clusters.connection_problem import CONNECTING, ConnectionProblem
from signer.controller.observability import metrics
from signer.controller.policies.active import ActivePolicies
from signer.controller.policies.object_reader import PolicyState
from signer.controller.reports.cluster_events import ClusterReporter, Connections
from signer.controller.reports.cluster_state import ClusterReport, render_reports, report_cluster
from signer.controller.reports.policy_status import PolicyStatuses, build_status, stored_reports
from signer.inventory.cluster_api.cluster import (
    CLIENT_SIGNER_ANNOTATION,
    ClusterObject,
    read_cluster,
)
from signer.inventory.custom_resources.policy_object import PolicyClient, PolicyObject, read_policy
from signer.kinds.cluster import ClusterKey
from signer.kinds.policy import POLICIES
from signer.kube.events import EventRecorder
from signer.policy.policy import ClusterSelector, Policy, PolicySet, RefusedPolicy
from tests.builders import kube_objects
from tests.builders.kube_objects import HOME
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import Object

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
DEFAULT = Policy(name="default")
OWN = Policy(name="own", clusters=ClusterSelector(cluster=HOME))
REFUSED = RefusedPolicy(
    name="own", clusters=ClusterSelector(cluster=HOME), problems=("spec.pcr: unknown key",)
)
SECRET_MISSING = ConnectionProblem(
    reason="KubeconfigRefused", message="Secret blue-kubeconfig: it is missing"
)
FORBIDDEN = ConnectionProblem(reason="Forbidden", message="apply the role", reachable=True)
OURS = frozenset({CLIENT_SIGNER})


def cluster(name: str = HOME.name, **labels: str) -> ClusterObject:
    body = kube_objects.cluster(**{CLIENT_SIGNER_ANNOTATION: CLIENT_SIGNER})
    body["metadata"] |= {"name": name, "uid": f"uid of {name}", "labels": labels}
    return read_cluster(body)


def policies(*accepted: Policy, refused: tuple[RefusedPolicy, ...] = ()) -> PolicySet:
    return PolicySet(accepted=accepted, refused=refused)


NOT_SERVED: Mapping[str, tuple[frozenset[str], PolicySet, ConnectionProblem | None, str, str]] = {
    "not opted in": (
        frozenset(),
        policies(OWN),
        None,
        "NotOptedIn",
        (
            "a policy selects the Cluster: set the annotation"
            f" {CLIENT_SIGNER_ANNOTATION}: {CLIENT_SIGNER}"
        ),
    ),
    "a typo in the opt-in": (
        frozenset({"cluster.x-k8s.io/kube-apiserver-client-kublet-tpm"}),
        policies(DEFAULT),
        None,
        "ClientSignerUnknown",
        (
            "the client signer cluster.x-k8s.io/kube-apiserver-client-kublet-tpm is unknown: set"
            f" {CLIENT_SIGNER_ANNOTATION}: {CLIENT_SIGNER}"
        ),
    ),
    "two signers": (
        OURS | {"another"},
        policies(DEFAULT),
        None,
        "MultipleClientSigners",
        f"the Cluster names several client signers: leave only {CLIENT_SIGNER}",
    ),
    "no policy": (
        OURS,
        policies(),
        None,
        "PolicyMissing",
        "no policy is for this Cluster: create a KubeletAttestationPolicy that selects it",
    ),
    "two policies": (
        OURS,
        policies(DEFAULT, Policy(name="second")),
        None,
        "PolicyConflict",
        "the policies default, second are for this Cluster: change all but one",
    ),
    "an invalid policy": (
        OURS,
        policies(DEFAULT, refused=(REFUSED,)),
        None,
        "PolicyInvalid",
        "the policy own is invalid: spec.pcr: unknown key",
    ),
    "no Secret": (
        OURS,
        policies(DEFAULT),
        SECRET_MISSING,
        "KubeconfigRefused",
        SECRET_MISSING.message,
    ),
    "no permission": (OURS, policies(DEFAULT), FORBIDDEN, "Forbidden", FORBIDDEN.message),
}


@pytest.mark.parametrize("case", NOT_SERVED)
def test_reason_and_next_step_are_reported(case: str) -> None:
    signers, present, connection, state, message = NOT_SERVED[case]
    report = report_cluster(cluster(), signers, present, connection)
    assert report is not None
    assert (report.state, report.message) == (state, message)
    assert not report.served


def test_metric_says_that_nothing_is_served_without_any_policy() -> None:
    report = report_cluster(cluster(), OURS, policies(), None)
    assert report is not None
    families = {f.name: f for f in metrics.collect_clusters(lambda: [report])}
    [sample] = families["node_attestation_cluster_served"].samples
    assert (sample.labels["reason"], sample.value) == ("PolicyMissing", 0)


def test_cluster_without_policy_and_annotation_has_no_report() -> None:
    """A policy for all other Clusters does not ask each of them to opt in."""
    assert report_cluster(cluster(), frozenset(), policies(DEFAULT), None) is None


@pytest.mark.parametrize(
    ("problem", "reachable"), [(None, True), (SECRET_MISSING, False), (FORBIDDEN, True)]
)
def test_cluster_without_a_problem_is_served_and_reachable_if_its_api_server_answers(
    problem: ConnectionProblem | None, *, reachable: bool
) -> None:
    report = report_cluster(cluster(), OURS, policies(DEFAULT), problem)
    assert report is not None
    assert (report.served, report.reachable) == (problem is None, reachable)
    assert report.policies == ("default",)


@dataclass(slots=True)
class ReporterFixture:
    """A reporter, and the Events that it writes."""

    problem: ConnectionProblem | None = None
    expiry: datetime | None = None
    seconds: float = 0.0
    served_elsewhere: set[str] = field(default_factory=set)
    """Names of Clusters that another replica serves."""
    events: list[tuple[str, str, str, bool]] = field(default_factory=list)
    management: FakeCluster = field(init=False)
    reporter: ClusterReporter = field(init=False)

    def __post_init__(self) -> None:
        self.management = FakeCluster(on_change=self.note)
        active = ActivePolicies(lambda _: {})
        active.replace(policies(DEFAULT), {})
        events = EventRecorder(FakeClient(self.management))
        connections = Connections(
            serves=lambda key: key.name not in self.served_elsewhere,
            is_counting_replica=lambda: False,
            opted_in_signers=lambda cluster: cluster.annotated_signers,
            problem=self.connection_problem,
            credential_expiry=self.credential_expiry,
        )
        self.reporter = ClusterReporter(
            active, connections, events, now=lambda: NOW, monotonic=lambda: self.seconds
        )

    def connection_problem(self, key: ClusterKey) -> ConnectionProblem | None:
        assert key.name not in self.served_elsewhere
        return self.problem

    def credential_expiry(self, key: ClusterKey) -> datetime | None:
        assert key.name not in self.served_elsewhere
        return self.expiry

    def note(self, _kind: str, _key: str, event: Object) -> None:
        assert event["lastTimestamp"] == format_time(NOW)
        written = (event["involvedObject"]["name"], event["reason"], event["message"])
        self.events.append((*written, event["type"] == "Warning"))

    def update(self, *clusters: ClusterObject) -> None:
        self.reporter.update(clusters or (cluster(),))


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(r)["fields"] for r in caplog.records if r.message == "cluster not served"]


def test_expiry_of_the_kubeconfig_is_shown_and_a_new_one_is_no_event() -> None:
    """The certificate expires silently otherwise, and then no node gets one."""
    fixture = ReporterFixture()
    fixture.update()
    families = {f.name: f for f in metrics.collect_clusters(lambda: fixture.reporter.own)}
    assert families["node_attestation_kubeconfig_not_after_seconds"].samples == []
    for year in (2027, 2028):
        fixture.expiry = datetime(year, 1, 1, tzinfo=UTC)
        fixture.update()
        families = {f.name: f for f in metrics.collect_clusters(lambda: fixture.reporter.own)}
        [sample] = families["node_attestation_kubeconfig_not_after_seconds"].samples
        assert sample.value == fixture.expiry.timestamp()
        assert sample.labels == {"namespace": "team-a", "cluster": "team-a/blue"}
    assert fixture.events == []


def test_kubeconfig_that_expires_soon_is_an_event_until_it_is_renewed() -> None:
    fixture = ReporterFixture(expiry=NOW + timedelta(days=30))
    fixture.update()
    assert fixture.events == []
    fixture.expiry = NOW + timedelta(days=29)
    fixture.update()
    fixture.update()
    [report] = fixture.reporter.own
    assert report.served
    fixture.expiry = NOW + timedelta(days=365)
    fixture.update()
    message = (
        "the signer serves the Cluster;"
        " the client certificate in the kubeconfig Secret expires on 2026-12-21:"
        " run kubectl attestation kubeconfig team-a/blue"
    )
    assert fixture.events == [
        ("blue", "ClusterServed", message, False),
        ("blue", "ClusterServed", "the signer serves the Cluster", False),
    ]


EXPIRES = "the client certificate in the kubeconfig Secret expires on 2026-12-21: run"


@pytest.mark.parametrize(
    ("problem", "message"), [(None, EXPIRES), (SECRET_MISSING, SECRET_MISSING.message)]
)
def test_new_replica_shows_the_expiry_of_a_served_cluster_and_else_the_cause(
    problem: ConnectionProblem | None, message: str
) -> None:
    fixture = ReporterFixture(problem=problem, expiry=NOW + timedelta(days=29))
    fixture.update()
    [(_, _, text, warning)] = fixture.events
    assert (message in text, EXPIRES in text, warning) == (True, problem is None, bool(problem))


@pytest.mark.parametrize(
    ("left", "state", "message"),
    [
        (
            timedelta(0),
            "KubeconfigRefused",
            "Secret expired on 2026-11-22: run kubectl attestation",
        ),
        (timedelta(days=1), "Forbidden", "apply workload-rbac.yaml"),
    ],
)
def test_expired_kubeconfig_is_no_missing_permission(
    left: timedelta, state: str, message: str
) -> None:
    """The API server answers 401, and an operator looked for a role."""
    forbidden = ConnectionProblem(reason="Forbidden", message="apply workload-rbac.yaml")
    fixture = ReporterFixture(problem=forbidden, expiry=NOW + left)
    fixture.update()
    [(_, reason, text, warning)] = fixture.events
    assert (reason, message in text, warning) == (state, True, True)


def test_problem_is_logged_and_becomes_one_event(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ReporterFixture(problem=SECRET_MISSING)
    for _ in range(5):
        fixture.update()
    assert fixture.events == [("blue", "KubeconfigRefused", SECRET_MISSING.message, True)]
    [fields] = warnings(caplog)
    assert fields == {
        "cluster": "team-a/blue",
        "namespace": "team-a",
        "policies": ["default"],
        "reason": "KubeconfigRefused",
        "message": SECRET_MISSING.message,
        "alarm": True,
    }


def test_recovery_is_an_event_and_a_served_cluster_is_none() -> None:
    fixture = ReporterFixture()
    fixture.update()
    assert fixture.events == []
    fixture.problem = SECRET_MISSING
    fixture.update()
    fixture.problem = None
    fixture.update()
    assert fixture.events[1:] == [("blue", "ClusterServed", "the signer serves the Cluster", False)]


def test_problem_that_lasts_is_an_event_each_hour() -> None:
    """The API server deletes Events after an hour."""
    fixture = ReporterFixture(problem=SECRET_MISSING)
    for _ in range(3):
        fixture.update()
        fixture.seconds += 3601
        fixture.management.objects.clear()
    assert len(fixture.events) == 3


def test_cluster_that_is_being_connected_is_reported_only_if_that_lasts() -> None:
    fixture = ReporterFixture(problem=CONNECTING)
    fixture.update()
    fixture.seconds += 29
    fixture.update()
    assert fixture.events == []
    fixture.seconds += 2
    fixture.update()
    assert [event[1] for event in fixture.events] == ["Connecting"]


def test_event_that_was_not_written_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    fixture = ReporterFixture(problem=SECRET_MISSING)
    fixture.management.intercept(403, path=f"/{HOME.namespace}/", times=inf)
    fixture.update()
    fixture.management.interceptions.clear()
    fixture.seconds = 30
    fixture.update()
    assert len(fixture.events) == 1
    assert len(warnings(caplog)) == 1


def test_namespace_that_refuses_events_silences_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """A namespace that was being deleted ended each round of reports before the next Cluster."""
    fixture = ReporterFixture(problem=SECRET_MISSING)
    fixture.management.intercept(403, path=f"/{HOME.namespace}/", times=inf)
    others = [replace(cluster(), key=replace(HOME, namespace=n), uid=n) for n in "xyz"]
    fixture.update(cluster(), *others)
    assert len(fixture.events) == 3
    assert {fields["namespace"] for fields in warnings(caplog)} == {"team-a", *"xyz"}


def test_tenant_with_many_clusters_delays_only_its_own_events(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = ReporterFixture(problem=SECRET_MISSING)
    many = [cluster(f"c-{number}") for number in range(30)]
    fixture.update(*many)
    assert len(fixture.events) == 20
    fixture.update(*many)
    assert {event[0] for event in fixture.events} == {each.key.name for each in many}
    logged = {fields["cluster"] for fields in warnings(caplog)}
    assert logged == {f"team-a/{each.key.name}" for each in many}


def policy(spec: dict[str, object] | None = None, **status: object) -> PolicyObject:
    metadata = {"name": "own", "uid": "uid", "resourceVersion": "7", "generation": 3}
    return read_policy({"metadata": metadata, "spec": spec or {}, "status": status})


def report(name: str, state: str = "Served", *names: str) -> ClusterReport:
    return ClusterReport(
        key=ClusterKey(namespace="team-a", name=name),
        uid=name,
        policies=names or ("own",),
        state=state,
        message="" if state == "Served" else f"{name} needs help",
    )


GOOD = PolicyState(problems=(), in_force=3)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}


def test_status_shows_clusters_those_first_that_are_not_served() -> None:
    reports = [report("a"), report("b", "Forbidden"), report("c", "Served", "other")]
    status = build_status(policy(), GOOD, reports, NOW)
    assert status["clusters"] == [
        {"namespace": "team-a", "name": "b", "state": "Forbidden", "message": "b needs help"},
        {"namespace": "team-a", "name": "a", "state": "Served"},
    ]
    assert (status["selectedClusters"], status["servedClusters"]) == (2, 1)
    assert (status["observedGeneration"], status["activeGeneration"]) == (3, 3)
    assert conditions(status) == {
        "Ready": ("True", "InForce", "the policy is in force"),
        "ClustersServed": ("False", "ClustersNotServed", "team-a/b: b needs help"),
    }


def test_status_shows_clusters_first_whose_kubeconfig_expires() -> None:
    expiring = replace(report("c"), message="the kubeconfig expires")
    status = build_status(policy(), GOOD, [report("a"), expiring, report("b")], NOW)
    assert [entry["name"] for entry in status["clusters"]] == ["c", "a", "b"]
    assert status["clusters"][0]["message"] == "the kubeconfig expires"
    assert conditions(status)["ClustersServed"] == (
        "True",
        "AllServed",
        "3 Clusters are served; team-a/c: the kubeconfig expires",
    )


def test_status_of_many_clusters_is_bounded() -> None:
    reports = [report(f"c-{number:03}", "Forbidden") for number in range(150)]
    status = build_status(policy(), GOOD, reports, NOW)
    assert len(status["clusters"]) == 100
    assert status["selectedClusters"] == 150
    assert conditions(status)["ClustersServed"][2].endswith("; and 147 more")


@pytest.mark.parametrize(
    ("spec", "state", "reports", "reason", "message"),
    [
        (
            {},
            PolicyState(problems=("p", "q"), in_force=2),
            [],
            "PolicyInvalid",
            "p; q; generation 2 stays in force",
        ),
        (
            {},
            PolicyState(problems=("p",), in_force=None),
            [],
            "PolicyInvalid",
            "p; its Clusters wait",
        ),
        (
            {},
            GOOD,
            [report("a", "PolicyConflict", "other", "own")],
            "PolicyConflict",
            "team-a/a: a needs help",
        ),
        (
            {"clusterRef": {"namespace": "n", "name": "c"}},
            GOOD,
            [],
            "ClusterNotFound",
            "no Cluster n/c exists: correct clusterRef",
        ),
    ],
    ids=["changed", "new", "conflict", "no such Cluster"],
)
def test_policy_that_is_not_ready_says_why(
    spec: dict[str, object],
    state: PolicyState,
    reports: list[ClusterReport],
    reason: str,
    message: str,
) -> None:
    status = build_status(policy(spec), state, reports, NOW)
    assert conditions(status)["Ready"] == ("False", reason, message)


def test_transition_time_changes_only_with_the_status() -> None:
    first = build_status(policy(), GOOD, [report("a")], NOW)
    later = NOW.replace(hour=13)
    second = build_status(policy(None, **first), GOOD, [report("a", "Forbidden")], later)
    times = [c["lastTransitionTime"] for c in second["conditions"]]
    assert times == ["2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z"]


@dataclass(slots=True)
class Writes:
    """A management cluster with the policy, and a clock."""

    api: FakeCluster = field(default_factory=FakeCluster)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        metadata = {"name": "own", "uid": "uid", "resourceVersion": "7"}
        self.api.objects[POLICIES.object_path("own")] = {"metadata": metadata}

    def start(self) -> PolicyStatuses:
        """Return what a replica writes with."""
        return PolicyStatuses(PolicyClient(FakeClient(self.api)), lambda: self.seconds)

    @property
    def statuses(self) -> list[Mapping[str, Any]]:
        return [body["status"] for body in self.api.bodies]


def test_status_is_written_only_when_it_changes() -> None:
    writes = Writes()
    statuses = writes.start()
    status = build_status(policy(), GOOD, [], NOW)
    statuses.write(policy(), status)
    statuses.write(policy(None, **status), status)
    assert writes.statuses == [status]


def test_two_replicas_that_differ_do_not_write_without_end() -> None:
    """One reaches a workload cluster, and the other one does not."""
    writes = Writes()
    mine = writes.start()
    own = build_status(policy(), GOOD, [report("a")], NOW)
    other = build_status(policy(), GOOD, [report("a", "ApiServerUnavailable")], NOW)
    mine.write(policy(), own)
    for _ in range(10):
        mine.write(policy(None, **other), own)
    assert len(writes.statuses) == 1
    writes.seconds += 31
    mine.write(policy(None, **other), own)
    assert len(writes.statuses) == 2


def test_status_that_conflicts_with_another_replica_is_written_again() -> None:
    writes = Writes()
    writes.api.intercept(409, "PATCH", times=inf)
    statuses = writes.start()
    status = build_status(policy(), GOOD, [report("a")], NOW)
    statuses.write(policy(), status)
    statuses.write(policy(), status)
    assert len(writes.statuses) == 2


def test_each_replica_reports_its_own_clusters() -> None:
    fixture = ReporterFixture(problem=SECRET_MISSING, served_elsewhere={"other"})
    fixture.update(cluster("mine"), cluster("other"))
    assert [event[0] for event in fixture.events] == ["mine"]
    assert [report.key.name for report in fixture.reporter.own] == ["mine"]
    [other] = fixture.reporter.others
    assert (other.key.name, other.state) == ("other", "Served")


def entry(name: str, state: str = "Served", namespace: str = "team-a") -> dict[str, str]:
    message = {} if state == "Served" else {"message": f"{name} needs help"}
    return {"namespace": namespace, "name": name, "state": state, **message}


def merged(
    stored: list[dict[str, str]],
    others: list[ClusterReport],
    watched: str = "",
    counted: int | None = None,
) -> dict[str, str]:
    selected = len(stored) if counted is None else counted
    status = policy(None, clusters=stored, selectedClusters=selected)
    reports = stored_reports(status, others, watched)
    return {report.key.name: report.state for report in reports}


def test_states_of_other_replicas_clusters_are_read_from_the_status() -> None:
    stored = [entry("a", "Forbidden"), entry("gone")]
    assert merged(stored, [report("a"), report("b")]) == {"a": "Forbidden", "b": "Connecting"}


def test_state_that_every_replica_can_see_is_not_read_from_the_status() -> None:
    assert merged([entry("a")], [report("a", "PolicyConflict")]) == {"a": "PolicyConflict"}


@pytest.mark.parametrize(
    ("listed", "counted", "state"),
    [(100, 101, "Served"), (100, 100, "Connecting"), (99, 100, "Served")],
    ids=["counted", "new", "counted, and a listed one was deleted"],
)
def test_cluster_that_a_full_status_counts_and_does_not_list_is_served(
    listed: int, counted: int, state: str
) -> None:
    """A replica of one namespace cannot fill the list up again, and they were "Connecting"."""
    stored = [entry(f"c-{number}", "Forbidden") for number in range(listed)]
    assert merged(stored, [report("a")], counted=counted) == {"a": state}


def test_replica_of_one_namespace_keeps_the_entries_of_other_namespaces() -> None:
    """It does not see their Clusters."""
    stored = [entry("a", "Forbidden"), entry("x", "Forbidden", "team-x")]
    assert merged(stored, [], watched="team-a") == {"x": "Forbidden"}


def test_two_replicas_write_one_status_of_all_clusters() -> None:
    """Each knows its own Clusters, and the status brings it those of the other."""
    stored: dict[str, Any] = {}
    for _ in range(2):
        for mine, other in (("a", "b"), ("b", "a")):
            present = policy(None, **stored)
            reports = [report(mine), *stored_reports(present, [report(other)], "")]
            stored = build_status(present, GOOD, reports, NOW)
    assert stored["clusters"] == [entry("a"), entry("b")]
    assert (stored["selectedClusters"], stored["servedClusters"]) == (2, 2)


def test_replica_of_one_namespace_does_not_change_the_counts_of_many_clusters() -> None:
    """It counted the 100 that are listed, and the other replica all, each half a minute."""
    elsewhere = [report(f"c-{number:03}") for number in range(150)]
    pinned = [
        replace(report(f"p-{number}"), key=ClusterKey(namespace="team-x", name=f"p-{number}"))
        for number in range(5)
    ]
    stored: dict[str, Any] = {}
    everywhere: dict[str, Any] = {}
    for _ in range(2):
        present = policy(None, **stored)
        reports = [*elsewhere, *stored_reports(present, pinned, "")]
        everywhere = stored = build_status(present, GOOD, reports, NOW)
        present = policy(None, **stored)
        reports = [*pinned, *stored_reports(present, [], "team-x")]
        stored = build_status(present, GOOD, reports, NOW, counts=False)
    assert stored == everywhere
    assert (stored["selectedClusters"], stored["servedClusters"]) == (155, 155)


def test_clusters_that_a_full_status_does_not_list_never_make_it_good() -> None:
    """Two replicas have 240 Clusters that are not served: only the count of served ones is wrong.

    It is right again as soon as the Clusters are served.
    """
    status: dict[str, Any] = {}
    for state in ("Forbidden", "Served"):
        a, b = ([report(f"{r}-{n:03}", state) for n in range(120)] for r in "ab")
        for own, others in ((a, b), (b, a)) * 2:
            present = policy(None, **status)
            seen = stored_reports(present, [replace(o, state="Served") for o in others], "")
            status = build_status(present, GOOD, [*own, *seen], NOW)
            if state == "Forbidden":
                assert status["conditions"][1]["status"] == "False"
                assert status["selectedClusters"] == 240
    assert status["conditions"][1]["status"] == "True"
    assert status["servedClusters"] == 240


def test_debug_page_names_the_replica_of_each_cluster() -> None:
    page = json.loads(
        render_reports(
            [report("a", "Forbidden")],
            [report("b")],
            lambda key: {"a": "first", "b": "second"}[key.name],
        )
    )
    assert page[0] == {
        "namespace": "team-a",
        "name": "a",
        "replica": "first",
        "state": "Forbidden",
        "message": "a needs help",
        "reachable": False,
        "policies": ["own"],
    }
    assert page[1] == {
        "namespace": "team-a",
        "name": "b",
        "replica": "second",
        "policies": ["own"],
    }
