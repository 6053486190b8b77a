"""HTTP server of the signer: metrics in the format of Prometheus, health and readiness."""

import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from ssl import SSLContext

import pytest
import requests
from cryptography import x509
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families

from signer.claims.node_problem import ProblemKind
from signer.controller.observability import audit, http_server, metrics
from signer.controller.observability.audit import AuditContext
from signer.controller.observability.http_server import (
    Access,
    HttpServer,
    build_app,
    self_signed_context,
)
from signer.controller.policies.object_reader import PolicyState
from signer.controller.queue.workqueue import QueueState
from signer.controller.reports.derived_conditions import NodeCounts
from signer.errors import NodeOfAnotherMachine
from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.custom_resources.policy_object import PolicyObject, read_policy
from signer.kinds.cluster import ClusterKey
from signer.policy.policy import EndorsementKeyRules, Policy, TrustMode
from signer.settings.trust_bundles import TrustBundleFiles, load_trust_bundle
from tests.builders.certificates import NOW, authority, revocation_list
from tests.builders.scenario import HOME, Scenario
from tests.harness.process import free_port, wait_until

ROOT = authority('Vendor "Root" CA')
LOOPBACK = "127.0.0.1"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(slots=True)
class RunningServer:
    """A server, and the state that its pages show."""

    url: str = ""
    healthy: bool = True
    ready: bool = True
    queue: QueueState = field(default_factory=lambda: QueueState({}, {}, frozenset()))

    def get(self, path: str, method: str = "GET") -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, self.url + path, timeout=10)

    def connect(self, seconds: float = 10) -> socket.socket:
        """Return a connection whose calls take this time at most."""
        return socket.create_connection((LOOPBACK, int(self.url.rpartition(":")[2])), seconds)

    def samples(self) -> Samples:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
        }


class PromptHttpServer(HttpServer):
    """Notices at once that it is to stop: with the default, each stop takes half a second."""

    def serve_forever(self, poll_interval: float = 0.01) -> None:
        super().serve_forever(poll_interval)


@contextmanager
def serve(
    files: TrustBundleFiles, tls: SSLContext | None = None, access: Access | None = None
) -> Iterator[RunningServer]:
    running = RunningServer()
    app = build_app(
        metrics.build_registry(lambda: files, lambda: running.queue, MemoryBudget()),
        healthy=lambda: running.healthy,
        ready=lambda: running.ready,
        clusters=lambda: b"[]",
        access=access,
    )
    server = PromptHttpServer((LOOPBACK, free_port()), app, tls)
    server.start()
    running.url = f"{'https' if tls else 'http'}://{LOOPBACK}:{server.server_port}"
    try:
        yield running
    finally:
        server.stop()


@pytest.fixture
def files(tmp_path: Path) -> TrustBundleFiles:
    (tmp_path / "root.der").write_bytes(ROOT.der)
    (tmp_path / "root.crl").write_bytes(revocation_list(ROOT))
    policy = Policy(
        name="tenants",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED,
            certificate_authorities=(str(tmp_path / "root.der"),),
            certificate_revocation_lists=(str(tmp_path / "root.crl"),),
        ),
    )
    return TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})


@pytest.fixture
def signer(files: TrustBundleFiles) -> Iterator[RunningServer]:
    with serve(files) as running:
        yield running


def one(samples: Samples, name: str, **labels: str) -> float:
    """Return the one sample that has at least these labels."""
    [value] = [
        value
        for (sample, having), value in samples.items()
        if sample == name and labels.items() <= dict(having).items()
    ]
    return value


def test_expiry_of_trust_anchors_is_shown(signer: RunningServer, files: TrustBundleFiles) -> None:
    samples = signer.samples()
    expiry = one(
        samples,
        "node_attestation_trust_anchor_not_after_seconds",
        policy="tenants",
        subject='CN=Vendor "Root" CA',
    )
    assert expiry == ROOT.certificate.not_valid_after_utc.timestamp()
    update = one(samples, "node_attestation_revocation_list_next_update_seconds")
    assert update > NOW.timestamp()
    assert one(samples, "node_attestation_trust_anchors_invalid", policy="tenants") == 0
    assert one(samples, "node_attestation_revocation_lists_unmatched", policy="tenants") == 0
    files.invalid.add("tenants")
    assert one(signer.samples(), "node_attestation_trust_anchors_invalid") == 1


def test_an_authority_and_its_successor_have_a_metric_each(
    files: TrustBundleFiles, tmp_path: Path
) -> None:
    """Their subjects are equal: neither metric may hide the other."""
    (tmp_path / "next.der").write_bytes(authority('Vendor "Root" CA').der)
    policy = Policy(
        name="tenants",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED, certificate_authorities=(str(tmp_path),)
        ),
    )
    (tmp_path / "root.crl").unlink()
    files.current["tenants"] = load_trust_bundle(policy)
    with serve(files) as signer:
        names = [name for name, _ in signer.samples()]
    assert names.count("node_attestation_trust_anchor_not_after_seconds") == 2


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (x509.Name([]), ""),
        (
            x509.Name(
                [
                    x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ünïted"),
                    x509.NameAttribute(NameOID.SERIAL_NUMBER, "7"),
                ]
            ),
            "C=DE, O=Ünïted, 2.5.4.5=7",
        ),
    ],
)
def test_subjects_are_readable(files: TrustBundleFiles, subject: x509.Name, text: str) -> None:
    [anchor] = files.current["tenants"].roots
    fields = replace(anchor.fields, subject=subject.public_bytes())
    roots = (replace(anchor, fields=fields),)
    files.current["tenants"] = replace(files.current["tenants"], roots=roots)
    with serve(files) as signer:
        samples = signer.samples()
    assert one(samples, "node_attestation_trust_anchor_not_after_seconds", subject=text)


def test_verdicts_are_counted_by_reason(signer: RunningServer) -> None:
    context = AuditContext(cluster=HOME, csr=Scenario().offer_csr(), started=0.0, kind="answer")
    labels = {
        "cluster": f"{HOME.namespace}/{HOME.name}",
        "kind": "answer",
        "outcome": "waiting",
        "reason": "NodeOfAnotherMachine",
        "check": "M4",
    }
    name = "node_attestation_verdicts_total"
    before = signer.samples().get((name, tuple(sorted(labels.items()))), 0.0)
    audit.log_verdict(context, "waiting", seconds=0.3, error=NodeOfAnotherMachine("message"))
    audit.log_verdict(context, "waiting", error=NodeOfAnotherMachine("message"), new=False)
    samples = signer.samples()
    assert one(samples, name, **labels) == before + 1
    bucket = "node_attestation_verdict_duration_seconds_bucket"
    within = [one(samples, bucket, kind="answer", le=limit) for limit in ("0.25", "0.5")]
    assert within[1] > within[0]
    # Each would be one more series for each reason and Cluster.
    assert not [name for name, _ in samples if name.endswith("_created")]


def test_no_content_of_a_request_is_a_label(signer: RunningServer) -> None:
    csr = Scenario().offer_csr()
    audit.log_verdict(
        AuditContext(cluster=HOME, csr=csr, started=0.0, node_name="node-1"), "denied"
    )
    text = signer.get("/metrics").text
    assert "denied" in text
    for name in (csr.name, csr.uid, csr.username, "node-1"):
        assert name not in text


@pytest.mark.parametrize(("path", "what"), [("/healthz", "healthy"), ("/readyz", "ready")])
def test_probes_show_the_state(signer: RunningServer, path: str, what: str) -> None:
    assert (signer.get(path).status_code, signer.get(path).text) == (200, "ok\n")
    setattr(signer, what, False)
    assert signer.get(path).status_code == 503


def test_other_paths_and_methods_are_refused(signer: RunningServer) -> None:
    for path in ("/", "/metrics/", "/debug"):
        assert signer.get(path).status_code == 404
    assert signer.get("/metrics", "POST").status_code == 405


@pytest.mark.parametrize("data", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe /metrics\r\n\r\n"])
def test_an_invalid_request_gets_no_page(signer: RunningServer, data: bytes) -> None:
    with signer.connect() as connection:
        connection.sendall(data)
        response = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b"node_attestation" not in response
    assert signer.get("/healthz").status_code == 200


def test_a_request_that_is_too_long_is_cut_off(signer: RunningServer) -> None:
    with signer.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n")
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    assert signer.get("/healthz").status_code == 200


def test_connections_above_the_limit_are_closed_at_once(
    signer: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent clients hold a connection each; when they are gone, others are served again."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 600.0)  # no request is cut off before
    silent = [signer.connect() for _ in range(32)]
    with pytest.raises(requests.ConnectionError):
        signer.get("/healthz")
    for connection in silent:
        connection.close()

    def is_served() -> bool:
        try:
            return signer.get("/healthz").status_code == 200
        except requests.ConnectionError:
            return False

    wait_until(is_served, what="requests are served again")


@pytest.mark.parametrize("data", [b"", b"GET /metrics HTTP/1.1\r\nX: "], ids=["silent", "slow"])
def test_a_request_that_takes_too_long_is_cut_off(
    signer: RunningServer, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """One byte now and then must not keep a thread: the limit is for the whole request."""
    monkeypatch.setattr(http_server, "_REQUEST_SECONDS", 0.3)
    with signer.connect(0.05) as connection:
        connection.sendall(data)
        ended = False
        for _ in range(400):
            try:
                ended = connection.recv(100) == b""
                break
            except TimeoutError:
                with suppress(ConnectionError):
                    connection.sendall(b"y" * bool(data))
            except ConnectionError:
                ended = True
                break
    assert ended
    assert signer.get("/healthz").status_code == 200


def test_an_exception_of_a_page_is_logged_and_answered(
    signer: RunningServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wsgiref would write the traceback to stderr, where every line of the signer is JSON."""
    signer.queue = None  # type: ignore[assignment] # a bug
    assert signer.get("/metrics").status_code == 500
    assert [r.message for r in caplog.records if r.exc_info] == ["page failed"]
    assert capfd.readouterr().err == ""


def test_metrics_name_each_hostile_tenant(signer: RunningServer) -> None:
    """And the cluster: how much is pending there, who holds workers, whose API server is slow."""
    silent = ClusterKey(namespace="hostile", name="silent")
    slow = ClusterKey(namespace="hostile", name="slow")
    signer.queue = QueueState(
        {silent: 7, HOME: 1}, {"hostile": 4}, frozenset({silent}), {slow: 29.0}
    )
    samples = signer.samples()
    labels = {"namespace": "hostile", "cluster": "hostile/silent"}
    assert one(samples, "node_attestation_pending_requests", **labels) == 7
    assert one(samples, "node_attestation_busy_workers", namespace="hostile") == 4
    assert one(samples, "node_attestation_circuit_breaker_open", **labels) == 1
    assert one(samples, "node_attestation_slow_call_seconds", cluster="hostile/slow") == 29
    assert one(samples, "node_attestation_pending_requests", cluster="tenants/blue") == 1


def test_a_tenant_with_many_clusters_cannot_fill_the_metrics(
    signer: RunningServer,
) -> None:
    keys = [ClusterKey(namespace="hostile", name=str(n)) for n in range(1200)]
    pending, slow = dict.fromkeys(keys, 9) | {HOME: 2}, dict.fromkeys(keys, 29.0) | {HOME: 5.0}
    signer.queue = QueueState(pending, {}, frozenset(pending), slow)
    names = [(name, dict(labels)) for name, labels in signer.samples()]
    assert sum(name == "node_attestation_pending_requests" for name, _ in names) == 100
    assert sum(name == "node_attestation_circuit_breaker_open" for name, _ in names) == 100
    assert sum(name == "node_attestation_slow_call_seconds" for name, _ in names) == 100
    gauges = ("pending_requests", "circuit_breaker_open", "slow_call_seconds")
    assert {name for name, labels in names if labels.get("cluster") == "tenants/blue"} >= {
        f"node_attestation_{gauge}" for gauge in gauges
    }
    labels = metrics._ClusterLabels()
    assert {labels.label(key) for key in keys} >= {"hostile/0", "(other)"}
    assert len({labels.label(key) for key in keys}) == 501
    assert labels.label(HOME) == "tenants/blue"


def policy_object(name: str) -> PolicyObject:
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "generation": 1}
    return read_policy({"metadata": metadata, "spec": {}})


def test_state_of_this_replica_is_shown() -> None:
    registry = metrics.build_registry(
        lambda: None,
        lambda: RunningServer().queue,
        MemoryBudget(),
        version="0.1",
        ready=lambda: True,
        policies=lambda: [
            (policy_object("a"), PolicyState(problems=("unknown key",), in_force=None)),
            (policy_object("production"), PolicyState(problems=(), in_force=1)),
        ],
        replicas=lambda: 3,
        clock_skew=lambda: -61.5,
        failing_kinds=lambda: {"Machines": 90.0},
    )
    assert registry.get_sample_value("node_attestation_ready") == 1
    failing = registry.get_sample_value(
        "node_attestation_kind_failing_seconds", {"objects": "Machines"}
    )
    assert failing == 90
    assert registry.get_sample_value("node_attestation_build_info", {"version": "0.1"}) == 1
    valid = partial(registry.get_sample_value, "node_attestation_policy_valid")
    assert valid({"policy": "a"}) == 0
    assert valid({"policy": "production"}) == 1
    assert registry.get_sample_value("node_attestation_replicas") == 3
    assert registry.get_sample_value("node_attestation_clock_skew_seconds") == -61.5


def test_metrics_show_nodes_that_will_lose_their_certificates() -> None:
    counts = NodeCounts()
    counts.problems[ProblemKind.OVERDUE, "RenewalOverdue"] = 2
    counts.problems[ProblemKind.REFUSED, "PcrPolicyMismatch"] = 1
    counts.earliest_ends = {None: NOW + timedelta(days=5), ProblemKind.OVERDUE: NOW}
    registry = metrics.build_registry(
        lambda: None, lambda: RunningServer().queue, MemoryBudget(), nodes=lambda: {HOME: counts}
    )
    labels = {"namespace": HOME.namespace, "cluster": str(HOME)}
    value = partial(registry.get_sample_value, "node_attestation_certificate_not_after_seconds")
    assert value({**labels, "renewal": ""}) == (NOW + timedelta(days=5)).timestamp()
    assert value({**labels, "renewal": "Overdue"}) == NOW.timestamp()
    assert registry.get_sample_value("node_attestation_overdue_nodes", labels) == 2
    refused = {**labels, "reason": "PcrPolicyMismatch"}
    assert registry.get_sample_value("node_attestation_refused_nodes", refused) == 1


def test_secure_server_encrypts_and_protects_the_metrics(files: TrustBundleFiles) -> None:
    """The probes need no token: the kubelet has none."""

    def access(header: str) -> HTTPStatus:
        return HTTPStatus.OK if header == "Bearer good" else HTTPStatus.FORBIDDEN

    tls = self_signed_context(datetime.now(UTC), 1)
    with (
        serve(files, tls, access) as signer,
        requests.Session() as session,
        warnings.catch_warnings(action="ignore"),
    ):
        session.trust_env = False
        session.verify = False
        assert session.get(f"{signer.url}/healthz", timeout=10).text == "ok\n"
        for path in ("/metrics", "/debug/clusters"):
            status = session.get(signer.url + path, timeout=10).status_code
            assert status == HTTPStatus.FORBIDDEN
        session.headers["Authorization"] = "Bearer good"
        assert "node_attestation" in session.get(f"{signer.url}/metrics", timeout=10).text
        with signer.connect() as plain:
            plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert b"node_attestation" not in plain.recv(65536)


def test_slow_handshake_is_ended(files: TrustBundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends nothing must not keep one of the connections."""
    monkeypatch.setattr(http_server, "_REVIEWED_REQUEST_SECONDS", 0.2)
    tls = self_signed_context(datetime.now(UTC), 1)
    with serve(files, tls) as signer, signer.connect() as silent:
        assert silent.recv(1) == b""
