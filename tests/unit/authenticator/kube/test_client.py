"""The client of the API server over real TLS on loopback: requests, and trusted responses.

The server is scripted: each test sets its responses, valid or not.
"""

import base64
import contextlib
import errno
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from authenticator.clock import SystemClock
from authenticator.errors import (
    ApiResponseMalformed,
    ApiServerUntrusted,
    ClientCertificateUnusable,
    DeadlinePassed,
    ExecInfoInvalid,
    Forbidden,
    Invalid,
    Unauthorized,
)
from authenticator.kube import client, response_errors
from authenticator.kube.client import KubernetesApi
from authenticator.model import ApiCredential, Csr, CsrRequest, Deadline, KeyPair, Server, Token
from common.errors import ApiServerUnavailable, AttestationError
from tests.fakes.api_server import Answering, FakeApiServer, Handler, Request, api_server
from tests.harness.pki import Authority, ec_key
from tests.harness.process import wait_until

AUTHORITY = Authority.make("cluster", ec_key())
STRANGER = Authority.make("stranger", ec_key())
CLIENT = AUTHORITY.client("system:node:worker-1", "system:nodes")
REQUEST = CsrRequest(
    name="kubelet-tpm-1",
    signer_name="cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
    usages=("client auth", "digital signature"),
    expiration_seconds=3600,
    request=b"-----BEGIN",
)
DOCUMENT: dict[str, Any] = {
    "apiVersion": "certificates.k8s.io/v1",
    "kind": "CertificateSigningRequest",
    "metadata": {
        "name": "kubelet-tpm-1",
        "uid": "uid-1",
        "resourceVersion": "7",
        "annotations": {"a": "b"},
    },
    "spec": {
        "request": base64.b64encode(b"-----BEGIN").decode(),
        "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        "usages": ["client auth", "digital signature"],
        "expirationSeconds": 3600,
        "username": "system:bootstrap:abcdef",
    },
    "status": {
        "conditions": [{"type": "Approved", "status": "True", "reason": "R", "message": "M"}],
        "certificate": base64.b64encode(b"PEM").decode(),
    },
}
CSR = Csr(
    uid="uid-1",
    resource_version="7",
    spec=REQUEST,
    annotations={"a": "b"},
    conditions={"Approved": ("R", "M")},
    certificate=b"PEM",
)


def changed(part: str, **change: object) -> dict[str, Any]:
    """Return the document with a change of its metadata or spec."""
    return {**DOCUMENT, part: {**DOCUMENT[part], **change}}


@dataclass
class Script:
    """The server, and how it answers each request."""

    running: FakeApiServer
    answer: Handler = lambda _: None

    @property
    def port(self) -> int:
        return self.running.server_port

    @property
    def requests(self) -> list[Request]:
        return self.running.requests

    def says(self, status: int, document: object, **headers: str) -> None:
        self.answer = lambda handler: handler.give(document, status, **headers)

    def server(self, **change: Any) -> Server:  # noqa: ANN401
        """Return the server as the exec info describes it."""
        given: dict[str, Any] = {
            "url": f"https://127.0.0.1:{self.port}",
            "ca": AUTHORITY.pair.certificate.decode(),
            "tls_server_name": None,
            "proxy": None,
        }
        return Server(**{**given, **change})

    def ask(
        self,
        requester: ApiCredential | None = None,
        seconds: float = 20,
        **change: Any,  # noqa: ANN401
    ) -> KubernetesApi:
        who = requester or Token(token="abcdef.secret")
        return KubernetesApi(self.server(**change), who, Deadline(SystemClock(), seconds))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeApiServer]:
    names = ("127.0.0.1", "kubernetes.example")
    directory = tmp_path_factory.mktemp("pki")
    with api_server(lambda _: None, directory, names=names, authority=AUTHORITY) as server:
        yield server


@pytest.fixture
def script(running: FakeApiServer) -> Script:
    """Return the server without received requests."""
    script = Script(running)
    running.requests = []
    running.handler = lambda handler: script.answer(handler)  # noqa: PLW0108 # it changes
    script.says(200, DOCUMENT)
    return script


def test_csr_is_created_as_specified(script: Script) -> None:
    script.says(201, DOCUMENT)
    assert script.ask().create(REQUEST) == CSR
    (request,) = script.requests
    assert (request.method, request.path) == ("POST", client.CSRS)
    assert request.headers["Authorization"] == "Bearer abcdef.secret"
    assert request.body["apiVersion"] == "certificates.k8s.io/v1"
    assert request.body["kind"] == "CertificateSigningRequest"
    assert request.body["metadata"] == {"name": "kubelet-tpm-1"}
    assert request.body["spec"] == {
        "request": base64.b64encode(b"-----BEGIN").decode(),
        "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        "usages": ["client auth", "digital signature"],
        "expirationSeconds": 3600,
    }


def test_lifetime_that_is_not_set_is_not_sent(script: Script) -> None:
    script.says(201, spec_without("expirationSeconds"))
    spec = replace(REQUEST, expiration_seconds=None)
    assert script.ask().create(spec).spec == spec
    (request,) = script.requests
    assert "expirationSeconds" not in request.body["spec"]


def test_csr_that_exists_is_returned(script: Script) -> None:
    def conflict_then_document(handler: Answering) -> None:
        status = 409 if handler.command == "POST" else 200
        handler.give(DOCUMENT, status)

    script.answer = conflict_then_document
    assert script.ask().create(REQUEST) == CSR


def test_missing_csr_is_none(script: Script) -> None:
    script.says(404, {})
    assert script.ask().get(REQUEST.name) is None


def test_client_certificate_is_presented(script: Script) -> None:
    script.ask(KeyPair(certificate=CLIENT.certificate, key=CLIENT.key)).get(REQUEST.name)
    assert script.requests[0].client == "system:node:worker-1"
    assert "Authorization" not in script.requests[0].headers


def test_key_is_never_in_a_named_file(script: Script, tmp_path: Path, monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script.ask(KeyPair(certificate=CLIENT.certificate, key=CLIENT.key)).get(REQUEST.name)
    assert not list(tmp_path.iterdir())


def test_reviewed_name_is_returned(script: Script) -> None:
    script.says(201, {"status": {"userInfo": {"username": "system:node:worker-1"}}})
    assert script.ask().self_subject_review() == "system:node:worker-1"


def test_permission_is_what_the_api_server_says(script: Script) -> None:
    for allowed in (True, False):
        script.says(201, {"status": {"allowed": allowed}})
        assert script.ask().can_create_csrs() is allowed


def say_date(script: Script, status: int, date: str) -> None:
    def answer(handler: Answering) -> None:
        handler.send_response_only(status)
        handler.send_header("Date", date)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    script.answer = answer


@pytest.mark.parametrize("status", [200, 401, 403, 503])
def test_time_is_that_of_any_response(script: Script, status: int) -> None:
    """A wrong clock is a common reason for a 401."""
    say_date(script, status, "Fri, 15 Jan 2027 08:00:00 GMT")
    assert script.ask().server_time() == 1_800_000_000


@pytest.mark.parametrize("date", ["", "soon", "Mon, 99 Jan 2027 08:00:00 GMT", "\x1b[2J"])
def test_malformed_date_is_no_time(script: Script, date: str) -> None:
    say_date(script, 200, date)
    assert script.ask().server_time() is None


def stream(handler: Answering, *events: dict[str, object]) -> None:
    """Send the events of a watch, one chunk each."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for event in events:
        line = json.dumps(event).encode() + b"\n"
        for part in (line[:10], line[10:]):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.flush()
    handler.wfile.write(b"0\r\n\r\n")


def listing(*documents: dict[str, Any]) -> bytes:
    """Return a list whose resourceVersion differs from that of its items."""
    return json.dumps({"metadata": {"resourceVersion": "9"}, "items": documents}).encode()


def watching(*events: dict[str, object], then: bytes = listing()) -> Any:  # noqa: ANN401
    """Answer a watch with events, and a read with a list."""

    def answer(handler: Answering) -> None:
        if "watch=1" in handler.path:
            stream(handler, *events)
        else:
            handler.give(then)

    return answer


def test_watch_starts_at_the_known_version(script: Script) -> None:
    newer = changed("metadata", resourceVersion="8")
    script.answer = watching({"type": "MODIFIED", "object": newer})
    seen = script.ask().wait_for_change(CSR, 5)
    assert seen is not None
    assert seen.resource_version == "8"
    query = script.requests[0].path
    assert "fieldSelector=metadata.name%3Dkubelet-tpm-1" in query
    assert "resourceVersion=7" in query
    assert "timeoutSeconds=5" in query


WATCHES: dict[str, tuple[dict[str, object], ...]] = {
    "nothing": (),
    "an expired version": ({"type": "ERROR", "object": {"code": 410}},),
}


@pytest.mark.parametrize("events", WATCHES)
def test_watch_without_a_change_is_followed_by_a_read(script: Script, events: str) -> None:
    script.answer = watching(*WATCHES[events], then=listing(DOCUMENT))
    assert script.ask().wait_for_change(CSR, 5) == replace(CSR, resource_version="9")
    assert len(script.requests) == 2
    assert "fieldSelector=metadata.name%3Dkubelet-tpm-1" in script.requests[1].path


def test_watch_of_an_expired_version_is_followed_by_a_read(script: Script) -> None:
    def answer(handler: Answering) -> None:
        if "watch=1" in handler.path:
            handler.give({"kind": "Status", "code": 410}, 410)
        else:
            handler.give(listing(DOCUMENT))

    script.answer = answer
    assert script.ask().wait_for_change(CSR, 5) == replace(CSR, resource_version="9")


def test_watch_continues_from_the_last_read_and_not_from_the_last_change(script: Script) -> None:
    """The version of an old change has expired, and each read would return it again."""
    script.answer = watching(*WATCHES["an expired version"], then=listing(DOCUMENT))
    looked_at = script.ask().wait_for_change(CSR, 5)
    assert looked_at is not None
    script.ask().wait_for_change(looked_at, 5)
    assert "resourceVersion=9" in script.requests[2].path


def test_deletion_is_seen(script: Script) -> None:
    script.answer = watching({"type": "DELETED", "object": DOCUMENT})
    assert script.ask().wait_for_change(CSR, 5) is None


REFUSALS: dict[int, type[AttestationError]] = {
    400: Invalid,
    413: Invalid,
    415: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: ApiResponseMalformed,
    422: Invalid,
    429: ApiServerUnavailable,
    500: ApiServerUnavailable,
    502: ApiServerUnavailable,
    504: ApiServerUnavailable,
    503: ApiServerUnavailable,
    410: ApiResponseMalformed,
    418: ApiResponseMalformed,
    204: ApiResponseMalformed,
    302: ApiResponseMalformed,
    307: ApiResponseMalformed,
}


@pytest.mark.parametrize("status", REFUSALS)
def test_each_error_status_has_its_error(script: Script, status: int) -> None:
    body = b"" if status == 204 else b'{"message": "because\\n of \\u001b[2J this"}'
    script.says(status, body, Location=f"https://127.0.0.1:{script.port}/elsewhere")
    with pytest.raises(REFUSALS[status]) as raised:
        script.ask().create(REQUEST)
    assert raised.value.message.isprintable()
    assert len(script.requests) == 1, "no redirect is followed"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"message": "because\\n of \\u001b[2J this"}', ": because of [2J this"),
        (json.dumps({"message": "x" * 301}).encode(), ": " + "x" * 300),
        (b'{"message": 5}', ": 5"),
        (b'{"reason": "x"}', ": "),
        (b"<html>", ": "),
        (b"[]", ": "),
    ],
    ids=["blanks", "long", "a number", "none", "not JSON", "a list"],
)
def test_message_of_an_error_status_is_one_short_line(body: bytes, expected: str) -> None:
    """The API server writes this text, and it goes to logs and terminals."""
    assert (
        response_errors.error_for_status(422, body).message
        == f"the API server rejects the request (422){expected}"
    )


def test_wrapped_cause_is_found() -> None:
    gone = OSError(errno.ECONNREFUSED, "Connection refused")
    untrusted = ssl.SSLCertVerificationError()
    untrusted.verify_message = "self-signed certificate"
    for cause, error in ((gone, ApiServerUnavailable), (untrusted, ApiServerUntrusted)):
        by_cause, by_context = ValueError("outer"), ValueError("outer")
        by_cause.__cause__ = cause
        by_context.__context__ = cause
        in_a_ring = ValueError("outer", cause)
        in_a_ring.__context__ = in_a_ring.__cause__ = ValueError(in_a_ring)
        for outer in (cause, by_cause, by_context, ValueError(cause), in_a_ring):
            csr = response_errors.error_for_exception(outer)
            assert type(csr) is error
            assert ("Connection refused" if cause is gone else "self-signed") in csr.message


def test_error_without_a_cause_is_named_by_its_type() -> None:
    assert response_errors.error_for_exception(OSError()).message.endswith(": OSError")


def spec_without(key: str) -> dict[str, object]:
    return {**DOCUMENT, "spec": {k: v for k, v in DOCUMENT["spec"].items() if k != key}}


@pytest.mark.parametrize(
    "change",
    [
        {"status": None},
        {"status": {"conditions": None, "certificate": None}},
        changed("metadata", annotations=None),
    ],
    ids=["status", "parts of the status", "annotations"],
)
def test_null_member_counts_as_absent(script: Script, change: dict[str, object]) -> None:
    script.says(200, DOCUMENT | change)
    csr = script.ask().get(REQUEST.name)
    assert csr is not None
    assert csr.spec == CSR.spec


def test_condition_needs_no_reason_and_no_message(script: Script) -> None:
    conditions = [{"type": "Denied", "reason": None}]
    script.says(200, {**DOCUMENT, "status": {"conditions": conditions}})
    csr = script.ask().get(REQUEST.name)
    assert csr is not None
    assert csr.conditions == {"Denied": ("", "")}


MALFORMED: dict[str, object] = {
    "not JSON": b"<html>",
    "nested too deeply": b"[" * 100_000,
    "a list": [],
    "a number": 5,
    "nothing": {},
    "no UID": {**DOCUMENT, "metadata": {"name": "x", "resourceVersion": "1"}},
    "no request": spec_without("request"),
    "request that is not base64": changed("spec", request="!"),
    "usages that are not a list": changed("spec", usages="all"),
    "lifetime that is not a number": changed("spec", expirationSeconds="1"),
    "annotations that are not strings": changed("metadata", annotations={"a": 5}),
    "conditions that are not objects": {**DOCUMENT, "status": {"conditions": [5]}},
    "condition without a type": {**DOCUMENT, "status": {"conditions": [{}]}},
    "certificate that is not base64": {**DOCUMENT, "status": {"certificate": "QQ==!"}},
    "certificate that is not a string": {**DOCUMENT, "status": {"certificate": 5}},
}


@pytest.mark.parametrize("malformed", MALFORMED)
def test_malformed_response_is_refused(script: Script, malformed: str) -> None:
    script.says(200, MALFORMED[malformed])
    with pytest.raises(ApiResponseMalformed):
        script.ask().get(REQUEST.name)


HOSTILE_NAME = "kubelet-tpm-1\x1b[2J\nkubelet-tpm-2"
RENAMED = changed("metadata", name=HOSTILE_NAME)


REQUESTS: dict[str, Callable[[KubernetesApi], object]] = {
    "created": lambda api: api.create(REQUEST),
    "read": lambda api: api.get(REQUEST.name),
    "watched": lambda api: api.wait_for_change(CSR, 5),
    "listed": lambda api: api.wait_for_change(CSR, 5),
}


@pytest.mark.parametrize("answer", REQUESTS)
def test_object_name_of_a_hostile_api_server_is_refused(script: Script, answer: str) -> None:
    """The name was copied to messages, and from there to records and terminals."""
    if answer == "watched":
        script.answer = watching({"type": "MODIFIED", "object": RENAMED})
    elif answer == "listed":
        script.answer = watching(then=listing(RENAMED))
    else:
        script.says(200, RENAMED)
    with pytest.raises(ApiResponseMalformed, match="another object") as raised:
        REQUESTS[answer](script.ask())
    assert raised.value.message.isprintable()


@pytest.mark.parametrize(
    "malformed",
    [
        [],
        {"items": {"a": 1}},
        {"items": [DOCUMENT]},
        {"items": [DOCUMENT], "metadata": {"resourceVersion": 9}},
        {"items": [{}], "metadata": {"resourceVersion": "9"}},
        {"items": [DOCUMENT], "metadata": {"resourceVersion": "\ud800"}},
    ],
    ids=lambda malformed: json.dumps(malformed)[-40:],
)
def test_malformed_list_is_refused(script: Script, malformed: object) -> None:
    script.answer = watching(then=json.dumps(malformed).encode())
    with pytest.raises(ApiResponseMalformed):
        script.ask().wait_for_change(CSR, 5)


@pytest.mark.parametrize("malformed", [{}, {"status": {}}, {"status": {"userInfo": 5}}, [], 5])
def test_malformed_review_is_an_error(script: Script, malformed: object) -> None:
    script.says(201, malformed)
    with pytest.raises(ApiResponseMalformed):
        script.ask().self_subject_review()


def test_response_over_the_limit_is_not_read(script: Script) -> None:
    def endless(handler: Answering) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**12))
        handler.end_headers()
        for _ in range(client.MAX_RESPONSE_BYTES // 65536 + 64):
            handler.wfile.write(b" " * 65536)

    script.answer = endless
    with pytest.raises(ApiResponseMalformed, match="too large"):
        script.ask().get(REQUEST.name)


def test_compressed_response_is_not_decompressed(script: Script) -> None:
    script.says(200, b"\x1f\x8b\x08", **{"Content-Encoding": "gzip"})
    with pytest.raises(ApiResponseMalformed):
        script.ask().get(REQUEST.name)
    assert script.requests[0].headers["Accept-Encoding"] == "identity"


def test_dripping_response_ends_with_the_deadline(script: Script) -> None:
    gone = threading.Event()

    def drip(handler: Answering) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not gone.wait(0.05):
                handler.wfile.write(b"0")

    script.answer = drip
    began = time.monotonic()
    with pytest.raises(DeadlinePassed):
        script.ask(seconds=0.6).get(REQUEST.name)
    gone.set()
    assert time.monotonic() - began < 20, "the whole response would take hours"


@pytest.mark.parametrize(
    ("budget", "silence", "error"), [(0.5, 10.0, DeadlinePassed), (30, 0.3, ApiServerUnavailable)]
)
def test_silent_server_ends_the_call_at_the_deadline_or_is_unavailable_before(
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    budget: float,
    silence: float,
    error: type[AttestationError],
) -> None:
    monkeypatch.setattr(client, "READ_SECONDS", silence)
    gone = threading.Event()
    script.answer = lambda _: gone.wait(5) and None  # type: ignore[assignment]
    with pytest.raises(error):
        script.ask(seconds=budget).get(REQUEST.name)
    gone.set()


def test_server_that_closes_the_connection_is_unavailable(script: Script) -> None:
    script.answer = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ApiServerUnavailable):
        script.ask().get(REQUEST.name)


def test_incomplete_response_is_unavailable(script: Script) -> None:
    def break_off(handler: Answering) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"{")
        handler.connection.shutdown(socket.SHUT_RDWR)

    script.answer = break_off
    with pytest.raises(ApiServerUnavailable):
        script.ask().get(REQUEST.name)


def test_closed_port_is_unavailable(script: Script) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ApiServerUnavailable, match="refused"):
            script.ask(url=url).get(REQUEST.name)


def test_no_request_is_sent_after_the_deadline(script: Script) -> None:
    with pytest.raises(DeadlinePassed):
        script.ask(seconds=0).get(REQUEST.name)
    assert script.requests == []


def test_certificate_of_another_authority_is_not_trusted(script: Script) -> None:
    with pytest.raises(ApiServerUntrusted):
        script.ask(ca=STRANGER.pair.certificate.decode()).get(REQUEST.name)
    assert script.requests == []


def test_certificate_for_another_name_is_not_trusted(script: Script) -> None:
    with pytest.raises(ApiServerUntrusted):
        script.ask(tls_server_name="other.example").get(REQUEST.name)


def test_tls_server_name_is_verified(script: Script) -> None:
    assert script.ask(tls_server_name="kubernetes.example").get(REQUEST.name) == CSR


def test_only_the_authority_of_the_exec_info_is_trusted(script: Script) -> None:
    api = script.ask()
    api.get(REQUEST.name)
    context = api._pool.connection_pool_kw["ssl_context"]
    assert len(context.get_ca_certs()) == 1


def test_environment_has_no_effect(script: Script, tmp_path: Path, monkeypatch: Any) -> None:  # noqa: ANN401
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pair.certificate)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login a password b\n", encoding="ascii")
    (tmp_path / ".netrc").chmod(0o600)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "ca.pem"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    assert script.ask().get(REQUEST.name) == CSR
    assert script.requests[0].headers["Authorization"] == "Bearer abcdef.secret"
    with pytest.raises(ApiServerUntrusted):
        script.ask(ca=STRANGER.pair.certificate.decode()).get(REQUEST.name)


def test_server_is_verified_through_a_proxy(script: Script) -> None:
    seen: list[bytes] = []

    def relay(listener: socket.socket) -> None:
        for _ in range(2):
            client, _ = listener.accept()
            seen.append(client.recv(4096).split(b"\r\n")[0])
            server = socket.create_connection(("127.0.0.1", script.port))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            pair = ((client, server), (server, client))
            threads = [threading.Thread(target=copy, args=ends) for ends in pair]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.close()
            server.close()

    def copy(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=relay, args=(listener,))
        thread.start()
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        api = script.ask(proxy=proxy, url="https://kubernetes.example:443")
        assert api.get(REQUEST.name) == CSR
        api._pool.clear()
        other = script.ask(proxy=proxy, url="https://other.example:443")
        with pytest.raises(ApiServerUntrusted):
            other.get(REQUEST.name)
        other._pool.clear()
        thread.join()
    assert [line.removesuffix(b" HTTP/1.0").removesuffix(b" HTTP/1.1") for line in seen] == [
        b"CONNECT kubernetes.example:443",
        b"CONNECT other.example:443",
    ]


@pytest.mark.parametrize(
    "ca", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_unreadable_ca_is_an_error(script: Script, ca: str) -> None:
    with pytest.raises(ExecInfoInvalid):
        script.ask(ca=ca)


UNREADABLE = {
    "not DER": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "not base64": "-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n",
    "cut": AUTHORITY.pair.certificate.decode().replace("MII", "AII"),
}


@pytest.mark.parametrize("unreadable", UNREADABLE)
@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_unreadable_certificate_in_the_bundle_is_ignored(
    script: Script, unreadable: str, *, first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """As client-go does. The other certificates of a bundle that grew are still trusted."""
    good = AUTHORITY.pair.certificate.decode()
    bundle = [UNREADABLE[unreadable], good] if first else [good, UNREADABLE[unreadable]]
    script.says(200, DOCUMENT)
    assert script.ask(ca="".join(bundle)).get(REQUEST.name) == CSR
    assert "1 of the 2 certificates in the CA of the cluster cannot be read" in caplog.text


def test_certificate_and_key_that_do_not_match_are_refused(script: Script) -> None:
    other = AUTHORITY.client("x").key
    with pytest.raises(ClientCertificateUnusable):
        script.ask(KeyPair(certificate=CLIENT.certificate, key=other))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_stays_open(script: Script) -> None:
    before = open_descriptors()
    for _ in range(5):
        api = script.ask(KeyPair(certificate=CLIENT.certificate, key=CLIENT.key))
        api.get(REQUEST.name)
        api._pool.clear()
    # Other threads of this process close the server's ends of the connections.
    wait_until(lambda: open_descriptors() <= before + 1, what="everything is closed")
