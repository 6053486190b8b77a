"""`--now` reports that certificates have ended only when the list of ended ones shows it."""

import time
from dataclasses import replace
from datetime import timedelta
from math import inf

import pytest

from common.node_identity import KEY_DIGITS
from signer.claims.ended_entry import EndedEntry
from signer.inventory.cluster_api.cluster import ClusterObject
from signer.inventory.ended_certificates import POLICY_NAMES, EndedCertificatesClient
from signer.kinds.resources import ADMISSION_POLICY_BINDINGS
from signer.kube.transport.client import Request
from signer.kube.transport.endpoint import ANSWER_SECONDS
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED
from signer.operator_cli.keys import ended_credentials
from signer.operator_cli.keys.ended_credentials import _await_in_cluster, await_end_of_credentials
from signer.operator_cli.management.snapshot import Snapshot
from signer.operator_cli.session import Session
from signer.operator_cli.workloads.workload_reader import Unreachable
from tests.builders import operator_clusters
from tests.builders.scenario import ABROAD, HOME, NODE, NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.management_api import Console, FakeManagement

KEY, OTHER = "ab" * 32, "cd" * 32
CLUSTER = replace(operator_clusters.CLUSTER, key=HOME)
HOLDER = {
    "clusterNamespace": HOME.namespace,
    "clusterName": HOME.name,
    "nodeName": NODE,
    "providerID": "test://1",
    "basis": "Registered",
}


def entry(key: str, *, is_ban: bool) -> EndedEntry:
    until = NOW + timedelta(days=1)
    return EndedEntry(key=key[:KEY_DIGITS], term=1, is_ban=is_ban, since=NOW, until=until)


ENDED, TAKEN = entry(KEY, is_ban=True), entry(OTHER, is_ban=False)
HELD = entry(KEY, is_ban=False)


def workload(*entries: EndedEntry | None) -> FakeCluster:
    """Return a workload cluster; each read of the list returns the next entry of the node."""
    cluster, rest = FakeCluster(), iter(entries)

    def change(_: Request) -> None:
        present, other = next(rest, entries[-1]), FakeCluster()
        EndedCertificatesClient(FakeClient(other)).change(lambda _: {NODE: present})
        cluster.objects = other.objects

    cluster.intercept(change, "GET", "validatingadmissionpolicies/" + POLICY_NAMES[0], times=inf)
    return cluster


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each poll take a second of a clock that only polls move."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def problem(cluster: FakeCluster) -> str:
    """Return why the certificates of the node do not end."""
    return _await_in_cluster(KEY, {(HOME, NODE), (ABROAD, "x")}, FakeClient(cluster), CLUSTER)


@pytest.mark.parametrize("ended", [ENDED, TAKEN], ids=["banned", "name taken over"])
def test_node_of_which_no_certificate_may_write_has_ended(ended: EndedEntry) -> None:
    assert problem(workload(None, HELD, ended)) == ""
    assert time.monotonic() == 2 + ended_credentials._EFFECT_SECONDS


@pytest.mark.parametrize("entry", [None, HELD])
def test_node_that_may_still_write_is_a_problem(entry: EndedEntry | None) -> None:
    """A node without an entry is not restricted."""
    assert "workload-rbac.yaml" in problem(workload(entry))


def test_policy_without_its_binding_ends_nothing() -> None:
    cluster = workload(ENDED)
    cluster.intercept(404, "GET", ADMISSION_POLICY_BINDINGS.plural, times=inf)
    assert "workload-rbac.yaml" in problem(cluster)


def console_of(
    monkeypatch: pytest.MonkeyPatch, clusters: tuple[ClusterObject, ...], **spec: object
) -> Console:
    """Return the console of a command that reads these Clusters and a banned key."""
    snapshot = Snapshot(
        clusters=clusters, machines=(), pools=(), nodes=[], keys={}, signers={}, annotations={}
    )
    monkeypatch.setattr(Session, "snapshot", lambda _: snapshot)
    management = FakeManagement()
    management.put_key(KEY, banned={"reason": "stolen"}, **spec)
    return Console(management)


@pytest.mark.parametrize(
    ("clusters", "problem", "status"),
    [
        ((CLUSTER,), "", EXIT_OK),
        ((CLUSTER,), "the signer has not listed them", EXIT_UNDECIDED),
        ((CLUSTER,), Unreachable("it does not answer"), EXIT_UNDECIDED),
        ((), "", EXIT_UNDECIDED),
    ],
    ids=["ended", "not listed", "unreachable", "no Cluster"],
)
def test_exit_status_shows_whether_all_certificates_have_ended(
    monkeypatch: pytest.MonkeyPatch,
    clusters: tuple[ClusterObject, ...],
    problem: str | Unreachable,
    status: int,
) -> None:
    def end(
        _: Session, found: list[ClusterObject], __: object, *, seconds: float
    ) -> list[tuple[ClusterObject, str | Unreachable]]:
        assert seconds >= ended_credentials._WAIT_SECONDS + ANSWER_SECONDS
        return [(cluster, problem) for cluster in found]

    monkeypatch.setattr(ended_credentials, "for_each_workload", end)
    console = console_of(monkeypatch, clusters, heldBy=HOLDER)
    assert await_end_of_credentials(console.session(), KEY) == status
    assert bool(console.complaint) is (status != EXIT_OK)
    assert ("can no longer write" in console.output) is (status == EXIT_OK)


def test_key_without_a_node_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    console = console_of(monkeypatch, (CLUSTER,))
    assert await_end_of_credentials(console.session(), KEY) == EXIT_OK
    assert "no certificate has ended" in console.output
