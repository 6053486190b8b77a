"""The insecure signer signs once for each Machine, wherever it is killed, and never quietly."""

import logging
from collections.abc import Callable
from datetime import timedelta
from random import Random
from threading import Event
from typing import Any

import pytest

from common.names import CLIENT_SIGNER
from signer.insecure import service
from signer.insecure.management import RECORD_ANNOTATION
from signer.insecure.service import InsecureSigner, Settings
from signer.insecure.verify import INSECURE_SIGNER, KUBEADM_GROUP
from signer.kinds.cluster import ClusterKey
from signer.kube.transport.client import Request
from tests.builders import kube_objects
from tests.builders.scenario import NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import ATTESTATION
from tests.harness import kubeconfig, pki
from tests.integration import plain_requests

BLUE = ClusterKey(namespace="team-a", name="blue")
CAPI = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a"
CLUSTER, MACHINE = f"{CAPI}/clusters/blue", f"{CAPI}/machines/machine-1"
SECRETS = "/api/v1/namespaces/team-a/secrets"
EVENTS = "/api/v1/namespaces/team-a/events"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
POLICIES = "/apis/attestation.cluster.x-k8s.io/v1alpha1/kubeletattestationpolicies"
AUTHORITY = pki.Authority.make("workload", pki.ec_key())
KUBECONFIG = kubeconfig.with_certificate(
    "https://192.0.2.1", AUTHORITY.pair.certificate, AUTHORITY.client("admin", "system:masters")
)


class SimulatedCrash(BaseException):
    """The process is killed."""


class Store(FakeCluster):
    """Both API servers."""

    def add_csr(self, name: str, node: str = "node-1", **spec: object) -> None:
        whole = {
            "signerName": INSECURE_SIGNER,
            "username": "system:bootstrap:abcdef",
            "groups": [KUBEADM_GROUP],
            "usages": ["digital signature", "client auth"],
            "request": plain_requests.request(node),
            **spec,
        }
        when = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": when}
        self.put(CSRS, {"metadata": metadata, "spec": whole})

    def conditions(self, name: str) -> dict[str, str]:
        status = self.objects[f"{CSRS}/{name}"].get("status", {})
        return {c["type"]: c["reason"] for c in status.get("conditions", [])}

    def has_certificate(self, name: str) -> bool:
        return "certificate" in self.objects[f"{CSRS}/{name}"].get("status", {})

    def events(self) -> list[dict[str, Any]]:
        return [body for path, body in self.objects.items() if path.startswith(EVENTS)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """One Cluster that names the insecure signer, with one Machine and one request for it."""
    store = Store()
    annotations = {"attestation.cluster.x-k8s.io/client-signer": INSECURE_SIGNER}
    metadata = {"name": "blue", "namespace": "team-a", "uid": "uid-blue"}
    store.put(f"{CAPI}/clusters", {"metadata": {**metadata, "annotations": annotations}})
    store.put(f"{CAPI}/machines", kube_objects.machine())
    pair = AUTHORITY.pair
    store.put(
        SECRETS,
        kube_objects.secret("blue-ca", {"tls.crt": pair.certificate, "tls.key": pair.key}),
        kube_objects.secret("blue-kubeconfig", {"value": KUBECONFIG.encode()}),
    )
    store.add_csr("first")
    monkeypatch.setattr(service, "ApiClient", lambda *_, **__: FakeClient(store))
    return store


RANDOM = Random(7).randbytes


def new_signer(
    store: Store,
    monotonic: Callable[[], float] = lambda: 0.0,
    random: Callable[[int], bytes] = RANDOM,
) -> InsecureSigner:
    """Return a signer as a new process has it."""
    settings = Settings(
        program="insecure",
        clusters=(BLUE,),
        lifetime=timedelta(days=365),
        now=lambda: AUTHORITY.certificate.not_valid_before_utc,
        monotonic=monotonic,
        random=random,
    )
    return InsecureSigner(FakeClient(store), settings)


def served(store: Store) -> Store:
    """Serve the Cluster for one round."""
    new_signer(store).serve(BLUE)
    return store


def test_first_request_of_a_machine_is_certified(store: Store) -> None:
    served(store)
    assert store.conditions("first") == {"Approved": "NothingAttested"}
    assert store.has_certificate("first")
    assert store.objects[MACHINE]["metadata"]["annotations"] == {RECORD_ANNOTATION: "uid-first"}


def test_certificate_that_is_not_as_verified_does_not_leave(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The rules are those of the signer: tests/attacks/test_issued_certificates.py."""
    new_signer(store, random=bytes).serve(BLUE)
    assert store.conditions("first") == {}
    assert not store.has_certificate("first")
    [line] = [r for r in caplog.records if r.getMessage() == "INSECURE: no certificate"]
    assert problem(line)["reason"] == "CertificateNotAsVerified"
    assert problem(line)["detail"] == "serial number"


def test_second_request_of_a_machine_is_denied(store: Store) -> None:
    served(store).add_csr("second")
    served(store)
    assert store.conditions("second") == {"Denied": "MachineAlreadyCertified"}
    assert not store.has_certificate("second")


def test_request_for_another_signer_is_not_touched(store: Store) -> None:
    store.add_csr("other", signerName=CLIENT_SIGNER)
    served(store)
    assert store.conditions("other") == {}


@pytest.mark.parametrize(
    ("node", "reason"), [("node-9", "MachineNotFound"), ("node-1", "MachineNotNew")]
)
def test_request_of_no_new_machine_waits_and_shows_why(
    store: Store, node: str, reason: str
) -> None:
    """A Node with the name of a Machine may be a node that has joined in another way."""
    store.put("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    del store.objects[f"{CSRS}/first"]
    store.add_csr("stranger", node=node)
    served(store)
    assert store.conditions("stranger") == {}
    events = "/api/v1/namespaces/default/events"
    about = [body for path, body in store.objects.items() if path.startswith(events)]
    assert [event["reason"] for event in about] == [reason]


def forbid_by_policy(store: Store) -> None:
    spec = {"clusterRef": {"namespace": "team-a", "name": "blue"}}
    metadata = {"name": "p", "uid": "uid-p", "generation": 1}
    store.put(POLICIES, {"metadata": metadata, "spec": spec})


def forbid_by_unreadable_policy(store: Store) -> None:
    forbid_by_policy(store)
    store.objects[f"{POLICIES}/p"]["spec"]["trustt"] = "Registered"


def opt_in_twice(store: Store) -> None:
    annotations = store.objects[CLUSTER]["metadata"]["annotations"]
    annotations["attestation.cluster.x-k8s.io/client-signer"] += f",{CLIENT_SIGNER}"


def opt_in_by_infrastructure(store: Store, signer: str = CLIENT_SIGNER) -> None:
    """Let the infrastructure cluster name a signer, by default another one than the annotation."""
    group = "infrastructure.cluster.x-k8s.io"
    store.objects[CLUSTER]["spec"] = {
        "security": {"kubeletAuthentication": True},
        "infrastructureRef": {"apiGroup": group, "kind": "DevCluster", "name": "blue"},
    }
    store.kinds[f"{group}/v1"] = {"devclusters": "DevCluster"}
    status = {"kubeletClientCertificateSigner": signer}
    body = {"kind": "DevCluster", "metadata": {"name": "blue"}, "status": status}
    store.put(f"/apis/{group}/v1/namespaces/team-a/devclusters", body)


def opt_in_to_another(store: Store) -> None:
    annotations = store.objects[CLUSTER]["metadata"]["annotations"]
    annotations["attestation.cluster.x-k8s.io/client-signer"] = CLIENT_SIGNER


def opt_out(store: Store) -> None:
    del store.objects[CLUSTER]["metadata"]["annotations"]


def delete_cluster(store: Store) -> None:
    del store.objects[CLUSTER]


@pytest.mark.parametrize(
    ("forbid", "reason"),
    [
        (forbid_by_policy, "AttestationPolicyPresent"),
        (forbid_by_unreadable_policy, "AttestationPolicyPresent"),
        (opt_in_twice, "MultipleClientSigners"),
        (opt_in_by_infrastructure, "MultipleClientSigners"),
        (opt_in_to_another, "NotOptedIn"),
        (opt_out, "NotOptedIn"),
        (delete_cluster, "NotOptedIn"),
    ],
)
def test_cluster_that_is_not_opted_in_alone_is_not_served(
    store: Store, caplog: pytest.LogCaptureFixture, forbid: Callable[[Store], None], reason: str
) -> None:
    forbid(store)
    served(store)
    assert store.conditions("first") == {}
    assert RECORD_ANNOTATION not in store.objects[MACHINE]["metadata"].get("annotations", {})
    assert [problem(record)["reason"] for record in caplog.records] == [reason]


def problem(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = record.__dict__["fields"]
    return fields


def test_infrastructure_cluster_may_name_the_insecure_signer(store: Store) -> None:
    opt_in_by_infrastructure(store, INSECURE_SIGNER)
    assert served(store).has_certificate("first")


def test_policies_without_their_crd_select_no_cluster(store: Store) -> None:
    del store.kinds[ATTESTATION]
    assert served(store).has_certificate("first")


WRITES = 5
"""Event of the Cluster, record, Event of the Machine, approval, certificate."""


@pytest.mark.parametrize("step", range(WRITES + 1))
def test_signer_killed_before_any_write_signs_the_same_request_once(
    store: Store, step: int
) -> None:
    store.intercept(SimulatedCrash(), "POST PATCH", skip=step)
    signer = new_signer(store)
    if step < WRITES:
        with pytest.raises(SimulatedCrash):
            signer.serve(BLUE)
    else:
        signer.serve(BLUE)
    assert store.has_certificate("first") is (step == WRITES)
    store.interceptions.clear()
    store.add_csr("second")
    served(store)
    assert store.has_certificate("first")
    assert store.conditions("first") == {"Approved": "NothingAttested"}
    assert store.conditions("second") == {"Denied": "MachineAlreadyCertified"}


def test_replica_that_verified_an_older_machine_does_not_sign(store: Store) -> None:
    """Between the verification and the record, another replica certifies another request."""
    other = new_signer(store)

    def interleave(_: Request) -> None:
        first = store.objects.pop(f"{CSRS}/first")
        store.add_csr("second")
        other.serve(BLUE)
        store.objects[f"{CSRS}/first"] = first

    store.intercept(interleave, "PATCH", MACHINE)
    served(store)
    assert store.has_certificate("second")
    assert not store.has_certificate("first")
    served(store)
    assert store.conditions("first") == {"Denied": "MachineAlreadyCertified"}


def test_certificate_has_warning_events_and_a_warning_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    served(store)
    about = {(e["involvedObject"]["kind"], e["type"], e["reason"]) for e in store.events()}
    assert about == {
        ("Cluster", "Warning", "NothingAttested"),
        ("Machine", "Warning", "NothingAttested"),
    }
    [line] = [r for r in caplog.records if r.getMessage() == "INSECURE: certificate issued"]
    assert line.levelno == logging.WARNING
    assert problem(line)["machine"] == "machine-1"


def test_signer_warns_at_the_start_and_once_an_hour(
    store: Store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store.objects[f"{CSRS}/first"]
    times = [0.0, 3.0, 3599.0, 3600.0, 3603.0]
    stop = Event()

    def monotonic() -> float:
        now = times.pop(0)
        if not times:
            stop.set()
        return now

    monkeypatch.setattr(service, "_ROUND_SECONDS", 0.0)
    new_signer(store, monotonic).run(stop)
    reminder = "INSECURE: nodes get certificates without attestation"
    assert [record.getMessage() for record in caplog.records] == [reminder, reminder]
