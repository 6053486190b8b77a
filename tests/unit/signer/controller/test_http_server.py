"""What others observe of the signer: metrics in Prometheus' format, and whether it is well."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families

from signer.controller import audit, http_server, metrics
from signer.controller.audit import AuditContext
from signer.controller.http_server import HttpServer, build_routes
from signer.errors import NodeOfAnotherMachine
from signer.policy import Policy, TrustMode
from signer.trust_bundles import TrustBundleFiles, load_trust_bundle
from tests.builders.certificates import NOW, authority, revocation_list
from tests.builders.scenario import HOME, Scenario
from tests.harness.process import free_port, wait_until

ROOT = authority('Vendor "Root" CA')
LOOPBACK = "127.0.0.1"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(slots=True)
class Observed:
    """A signer's observatory, and the state that it tells."""

    url: str = ""
    healthy: bool = True
    ready: bool = True

    def get(self, path: str, method: str = "GET") -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, self.url + path, timeout=10)

    def samples(self) -> Samples:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
        }


@contextmanager
def observed(files: TrustBundleFiles) -> Iterator[Observed]:
    made = Observed()
    pages = build_routes(
        metrics.build_registry(files), healthy=lambda: made.healthy, ready=lambda: made.ready
    )
    address = (LOOPBACK, free_port())
    observatory = HttpServer(address, pages)
    observatory.start()
    made.url = f"http://{LOOPBACK}:{address[1]}"
    try:
        yield made
    finally:
        observatory.stop()


@pytest.fixture
def files(tmp_path: Path) -> TrustBundleFiles:
    (tmp_path / "root.der").write_bytes(ROOT.der)
    (tmp_path / "root.crl").write_bytes(revocation_list(ROOT))
    policy = Policy(
        name="tenants",
        trust=TrustMode.CERTIFIED,
        certificate_authorities=(str(tmp_path / "root.der"),),
        certificate_revocation_lists=(str(tmp_path / "root.crl"),),
    )
    return TrustBundleFiles([policy], {"tenants": load_trust_bundle(policy)})


@pytest.fixture
def signer(files: TrustBundleFiles) -> Iterator[Observed]:
    with observed(files) as made:
        yield made


def one(samples: Samples, name: str, **labels: str) -> float:
    """Return the one sample that has at least these labels."""
    [value] = [
        value
        for (found, having), value in samples.items()
        if found == name and labels.items() <= dict(having).items()
    ]
    return value


def test_expiry_of_what_is_configured(signer: Observed, files: TrustBundleFiles) -> None:
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


def test_an_authority_and_its_successor_are_two(files: TrustBundleFiles, tmp_path: Path) -> None:
    """Equal subjects, so the one that expires first must not hide the other, nor be hidden."""
    (tmp_path / "next.der").write_bytes(authority('Vendor "Root" CA').der)
    policy = Policy(
        name="tenants", trust=TrustMode.CERTIFIED, certificate_authorities=(str(tmp_path),)
    )
    (tmp_path / "root.crl").unlink()
    files.current["tenants"] = load_trust_bundle(policy)
    with observed(files) as signer:
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
def test_subjects_are_written_for_people(
    files: TrustBundleFiles, subject: x509.Name, text: str
) -> None:
    [anchor] = files.current["tenants"].roots
    fields = replace(anchor.fields, subject=subject.public_bytes())
    roots = (replace(anchor, fields=fields),)
    files.current["tenants"] = replace(files.current["tenants"], roots=roots)
    with observed(files) as signer:
        samples = signer.samples()
    assert one(samples, "node_attestation_trust_anchor_not_after_seconds", subject=text)


def test_verdicts_are_counted_by_their_reasons(signer: Observed) -> None:
    trail = AuditContext(cluster=HOME, csr=Scenario().offer_csr(), started=0.0, kind="answer")
    labels = {
        "cluster": f"{HOME.namespace}/{HOME.name}",
        "kind": "answer",
        "outcome": "waiting",
        "reason": "NodeOfAnotherMachine",
        "check": "M4",
    }
    name = "node_attestation_verdicts_total"
    before = signer.samples().get((name, tuple(sorted(labels.items()))), 0.0)
    audit.log_verdict(trail, "waiting", error=NodeOfAnotherMachine("look"))
    audit.log_verdict(trail, "waiting", error=NodeOfAnotherMachine("look"), new=False)
    assert one(signer.samples(), name, **labels) == before + 1


def test_no_name_of_a_request_is_a_label(signer: Observed) -> None:
    csr = Scenario().offer_csr()
    audit.log_verdict(
        AuditContext(cluster=HOME, csr=csr, started=0.0, node_name="node-1"), "denied"
    )
    text = signer.get("/metrics").text
    assert "denied" in text
    for name in (csr.name, csr.uid, csr.username, "node-1"):
        assert name not in text


@pytest.mark.parametrize(("path", "what"), [("/healthz", "healthy"), ("/readyz", "ready")])
def test_probes(signer: Observed, path: str, what: str) -> None:
    assert (signer.get(path).status_code, signer.get(path).text) == (200, "ok\n")
    setattr(signer, what, False)
    assert signer.get(path).status_code == 503


def test_nothing_else_is_there(signer: Observed) -> None:
    for path in ("/", "/metrics/", "/debug"):
        assert signer.get(path).status_code == 404
    assert signer.get("/metrics", "POST").status_code == 405


@pytest.mark.parametrize("data", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\xfe /metrics\r\n\r\n"])
def test_what_is_no_request_gets_no_page(signer: Observed, data: bytes) -> None:
    host, _, port = signer.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert signer.get("/healthz").status_code == 200


def test_a_request_without_end_is_cut_off(signer: Observed) -> None:
    host, _, port = signer.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2000)
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    assert signer.get("/healthz").status_code == 200


def test_silent_ones_do_not_keep_others_away_for_ever(
    signer: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes while too many are there is turned away at once, and may come again."""
    monkeypatch.setattr(http_server, "_SECONDS", 600.0)  # none of them is cut off before
    host, _, port = signer.url.removeprefix("http://").partition(":")
    silent = [socket.create_connection((host, int(port)), timeout=10) for _ in range(32)]
    with pytest.raises(requests.ConnectionError):
        signer.get("/healthz")
    for connection in silent:
        connection.close()

    def let_in() -> bool:
        try:
            return signer.get("/healthz").status_code == 200
        except requests.ConnectionError:
            return False

    wait_until(let_in, what="somebody is let in again")
