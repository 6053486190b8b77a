"""The node's CSR interface over the fake and over a real API server: both meet one contract."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from cryptography import x509

from authenticator.clock import SystemClock
from authenticator.enroll.trial import require_accepted
from authenticator.errors import CertificateNotAccepted, CertificateNotYetValid, Unauthorized
from authenticator.kube.client import KubernetesApi
from authenticator.model import (
    ApiCredential,
    Csr,
    CsrApi,
    CsrRequest,
    Deadline,
    KeyPair,
    Server,
    Token,
)
from common.names import CLIENT_SIGNER
from common.requests.csr import build_pkcs10, encode_request
from tests.fakes.clock import FakeClock
from tests.fakes.csr_api import FakeWorkload
from tests.harness.fleet import Fleet
from tests.harness.pki import Authority, ec_key
from tests.harness.workload import WorkloadCluster

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
DENIED = {"type": "Denied", "status": "True", "reason": "R", "message": "M"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One API server, and the changes that other clients make there."""

    ask: Callable[[ApiCredential], CsrApi]
    bootstrapper: Token
    node: KeyPair
    annotate: Callable[[str], None]
    deny: Callable[[str], None]
    delete: Callable[[str], object]


def node_of(authority: Authority) -> KeyPair:
    """Return a node's certificate."""
    pair = authority.client("system:node:contract", "system:nodes")
    return KeyPair(certificate=pair.certificate, key=pair.key)


def fake() -> Subject:
    """Return an API server in memory, without a signer."""
    cluster = FakeWorkload(FakeClock(wall_time=time.time()), signer_is_away=True)

    def deny(name: str) -> None:
        cluster.update(replace(cluster.csrs[name], conditions={"Denied": ("R", "M")}))

    return Subject(
        ask=cluster.connect,
        bootstrapper=Token(token=next(iter(cluster.tokens))),
        node=node_of(Authority.make("fake", ec_key())),
        annotate=lambda name: cluster.annotate(name, "a", "b"),
        deny=deny,
        delete=cluster.csrs.pop,
    )


def real(workload: WorkloadCluster) -> Subject:
    """Return a real API server."""
    server = Server(
        url=workload.url,
        ca=workload.authority.pair.certificate.decode(),
        tls_server_name=None,
        proxy=None,
    )

    def deny(name: str) -> None:
        csr = workload.admin.get(f"{CSRS}/{name}")
        csr["status"] = {"conditions": [DENIED]}
        workload.admin.replace(f"{CSRS}/{name}/approval", csr)

    def annotate(name: str) -> None:
        workload.admin.patch(f"{CSRS}/{name}", {"metadata": {"annotations": {"a": "b"}}})

    return Subject(
        ask=lambda who: KubernetesApi(server, who, Deadline(SystemClock(), 30)),
        bootstrapper=Token(token=workload.bootstrap_token()),
        node=node_of(workload.client_authority),
        annotate=annotate,
        deny=deny,
        delete=lambda name: workload.admin.delete(f"{CSRS}/{name}"),
    )


@pytest.fixture(scope="module", params=["fake", "real"])
def subject(request: pytest.FixtureRequest, fleet: Fleet) -> Subject:
    """Return each kind of API server in turn."""
    return fake() if request.param == "fake" else real(fleet.first.workload)


def new_request() -> CsrRequest:
    """Return a request under a new name. No signer accepts its attestation."""
    pkcs10 = build_pkcs10(ec_key(), node_name="contract", provider_id="test:///contract")
    return CsrRequest(
        name="kubelet-tpm-" + secrets.token_hex(16),
        signer_name=CLIENT_SIGNER.replace("kubelet-tpm", "contract"),
        usages=("client auth", "digital signature"),
        expiration_seconds=3600,
        request=encode_request(pkcs10, b"{}"),
    )


def filed(subject: Subject) -> Csr:
    """File a request as a bootstrapper."""
    return subject.ask(subject.bootstrapper).create(new_request())


def poll(api: CsrApi, csr: Csr) -> Csr:
    """Wait for a while, and return a CSR that changed after the known version."""
    found = api.wait_for_change(csr, 1)
    assert found is not None
    return replace(found, resource_version=csr.resource_version)


def test_filed_request_is_returned_unchanged(subject: Subject) -> None:
    request = new_request()
    csr = subject.ask(subject.bootstrapper).create(request)
    assert csr.spec == request
    assert (csr.annotations, csr.conditions, csr.certificate) == ({}, {}, None)
    assert subject.ask(subject.bootstrapper).get(request.name) == csr


def test_time_is_told_to_any_requester(subject: Subject) -> None:
    for requester in (subject.bootstrapper, Token(token="unknown.token")):
        server_time = subject.ask(requester).server_time()
        assert server_time is not None
        assert abs(server_time - time.time()) < 60


def test_existing_csr_of_a_name_is_kept(subject: Subject) -> None:
    first = filed(subject)
    again = replace(new_request(), name=first.spec.name)
    assert subject.ask(subject.bootstrapper).create(again) == first


def test_unused_name_has_no_csr(subject: Subject) -> None:
    assert subject.ask(subject.bootstrapper).get("kubelet-tpm-none") is None


def test_earlier_change_is_seen_at_once(subject: Subject) -> None:
    csr = filed(subject)
    subject.annotate(csr.spec.name)
    changed = subject.ask(subject.bootstrapper).wait_for_change(csr, 20)
    assert changed is not None
    assert changed.annotations == {"a": "b"}
    assert changed.resource_version != csr.resource_version
    assert changed.uid == csr.uid


def test_denial_is_seen_with_its_reason(subject: Subject) -> None:
    csr = filed(subject)
    subject.deny(csr.spec.name)
    changed = subject.ask(subject.bootstrapper).wait_for_change(csr, 20)
    assert changed is not None
    assert changed.conditions == {"Denied": ("R", "M")}


def test_unchanged_csr_is_returned_after_the_wait(subject: Subject) -> None:
    csr = filed(subject)
    began = time.monotonic()
    assert poll(subject.ask(subject.bootstrapper), csr) == csr
    assert time.monotonic() - began < 20


def test_watch_continues_from_an_old_change(fleet: Fleet) -> None:
    """An API server knows no change from before its start: a watch from there ends at once.

    A client that restarts the watch from the same version would send hundreds of requests a second.
    """
    subject = real(fleet.first.workload)
    csr = filed(subject)
    filed(subject)
    fleet.first.workload.restart_apiserver()
    api = subject.ask(subject.bootstrapper)
    poll = api.wait_for_change(csr, 1)
    assert poll is not None
    began = time.monotonic()
    assert api.wait_for_change(poll, 1) is not None
    assert time.monotonic() - began > 0.5


def test_deletion_is_seen(subject: Subject) -> None:
    csr = filed(subject)
    subject.delete(csr.spec.name)
    assert subject.ask(subject.bootstrapper).wait_for_change(csr, 20) is None


def test_requester_is_known_by_name(subject: Subject) -> None:
    assert str(subject.ask(subject.bootstrapper).self_subject_review()).startswith(
        "system:bootstrap:"
    )
    assert subject.ask(subject.node).self_subject_review() == "system:node:contract"


def test_node_has_permission_for_every_call(subject: Subject) -> None:
    api = subject.ask(subject.node)
    csr = api.create(new_request())
    assert api.get(csr.spec.name) == csr
    assert poll(api, csr) == csr


def test_unknown_requester_is_refused(subject: Subject) -> None:
    with pytest.raises(Unauthorized):
        subject.ask(Token(token="abcdef.fedcba9876543210")).self_subject_review()


def test_certificate_of_the_future_is_not_taken_for_one_of_another_authority(fleet: Fleet) -> None:
    """The API server answers 401 to both."""
    workload = fleet.first.workload
    subject = real(workload)
    for authority, error in (
        (workload.client_authority, CertificateNotYetValid),
        (Authority.make("another", ec_key()), CertificateNotAccepted),
    ):
        begins_in = timedelta(minutes=2 if error is CertificateNotYetValid else -2)
        issued = authority.client("system:node:later", "system:nodes", backdated=-begins_in)
        leaf = x509.load_pem_x509_certificate(issued.certificate)
        pair = KeyPair(certificate=issued.certificate, key=issued.key)
        with pytest.raises(error):
            require_accepted(subject.ask(pair), "later", int(leaf.not_valid_before_utc.timestamp()))
