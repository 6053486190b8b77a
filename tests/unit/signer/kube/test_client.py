"""Requests to an API server that may be hostile: bounded, never redirected, and only over TLS."""

import gc
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from common.errors import ApiServerUnavailable
from signer.errors import KubeconfigRefused
from signer.kube import client, tls
from signer.kube.client import ApiClient, Expired, PageTooLarge
from signer.kube.decode import object_key
from signer.kube.kubeconfig import ClientCertificate, Connection
from signer.kube.tls import client_context
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.clock import FakeClock
from tests.harness import pki

PATH = "/api/v1/things"
MAX_RESPONSE = 1 << 20


def connection(server: FakeApiServer) -> Connection:
    return Connection(
        server=server.url, ca=server.authority.pair.certificate.decode(), token="very-secret"
    )


@contextmanager
def serving(
    handler: Handler, directory: Path, *, names: tuple[str, ...] = ("127.0.0.1",)
) -> Iterator[tuple[FakeApiServer, ApiClient]]:
    with api_server(handler, directory, names=names) as server:
        api = ApiClient("fake", connection(server), user_agent="test", max_response=MAX_RESPONSE)
        yield server, api
        api.close()
        gc.collect()


def unavailable(handler: Handler, directory: Path) -> ApiServerUnavailable:
    with serving(handler, directory) as (_, api), pytest.raises(ApiServerUnavailable) as caught:
        api.get(PATH)
    return caught.value


def test_request_has_credential_and_user_agent(tmp_path: Path) -> None:
    with serving(lambda a: a.give({"kind": "Thing"}), tmp_path) as (server, api):
        assert json.loads(api.get(PATH, {"limit": "5"}).content) == {"kind": "Thing"}
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", f"{PATH}?limit=5")
    assert request.headers["Authorization"] == "Bearer very-secret"
    assert request.headers["User-Agent"] == "test"


def test_renewed_token_is_used(tmp_path: Path) -> None:
    """Service account tokens are renewed in their file before they expire."""
    file = tmp_path / "token"
    with api_server(lambda a: a.give({}), tmp_path) as server:
        changed_connection = replace(connection(server), token=None, token_file=file)
        api = ApiClient("fake", changed_connection, user_agent="test")
        for token in ("first", "second"):
            file.write_text(f"{token}\n")
            api.get(PATH)
        api.close()
    sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer second"]


def test_writes_have_method_and_media_type(tmp_path: Path) -> None:
    with serving(lambda a: a.give({}), tmp_path) as (server, api):
        api.create(PATH, {"a": 1}, accepted=(200,))
        api.replace(PATH, {"a": 2})
        api.merge_patch(PATH, {"a": 3})
        api.json_patch(PATH, [{"op": "test"}])
        api.delete(PATH, {"uid": "u"})
    sent = [(r.method, r.headers["Content-Type"], r.body) for r in server.requests]
    assert sent[:4] == [
        ("POST", "application/json", {"a": 1}),
        ("PUT", "application/json", {"a": 2}),
        ("PATCH", "application/merge-patch+json", {"a": 3}),
        ("PATCH", "application/json-patch+json", [{"op": "test"}]),
    ]
    assert sent[4][2]["preconditions"] == {"uid": "u"}


def test_unexpected_status_is_unavailable(tmp_path: Path) -> None:
    error = unavailable(lambda a: a.give({"message": "go away"}, 403), tmp_path)
    assert error.message == "the API server answered with status 403"
    assert "go away" in error.detail
    assert "very-secret" not in error.detail


def test_expected_status_is_returned(tmp_path: Path) -> None:
    with serving(lambda a: a.give({}, 404), tmp_path) as (_, api):
        assert api.get(PATH, accepted=(200, 404)).status == 404


def test_redirect_is_not_followed(tmp_path: Path) -> None:
    """A workload cluster could redirect the signer, with its token, to the management cluster."""
    with serving(lambda a: a.give({}, 307, Location="/api/v1/elsewhere"), tmp_path) as (
        server,
        api,
    ):
        with pytest.raises(ApiServerUnavailable, match="status 307"):
            api.get(PATH)
        assert len(server.requests) == 1


@pytest.mark.parametrize("content", [b"<html>", b"[1]", b'{"a":', b"[" * 100_000, b"\xff", b"{}"])
def test_answer_that_is_no_such_object_is_unavailable(content: bytes, tmp_path: Path) -> None:
    with serving(lambda a: a.give(content), tmp_path) as (_, api):
        response = api.get(PATH)
    with pytest.raises(ApiServerUnavailable, match="answer cannot be read"):
        response.read(object_key)


def test_endless_answer_is_abandoned(tmp_path: Path) -> None:
    def endless(answering: Answering) -> None:
        answering.give_chunks(itertools.repeat(b"x" * 65536))

    with serving(endless, tmp_path) as (_, api):
        with pytest.raises(ApiServerUnavailable, match="answer is too large"):
            api.get(PATH)
        with pytest.raises(PageTooLarge):
            api.get_page(PATH, {})


DRIPS = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "content of known length": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
    "content until the end": (b"HTTP/1.0 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n\n\r\n"),
    "one chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", b"x"),
}
"""The start of an answer, and the bytes that then follow slowly."""


def dripping(drip: str) -> Handler:
    """Return a handler that sends single bytes for much longer than the limit."""
    start, unit = DRIPS[drip]

    def drips(answering: Answering) -> None:
        answering.wfile.write(start)
        for _ in range(200):
            answering.wfile.write(unit)
            time.sleep(0.05)

    return drips


@pytest.mark.parametrize("drip", DRIPS)
def test_dripping_answer_is_abandoned(drip: str, tmp_path: Path) -> None:
    """Each byte renews the timeout of a socket: only a limit for the whole answer helps."""
    with patch.object(client, "_ANSWER_SECONDS", 0.5):
        begun = time.monotonic()
        error = unavailable(dripping(drip), tmp_path)
        assert time.monotonic() - begun < 5.0
    assert "timed out" in error.detail


def test_deadline_of_an_answer_starts_with_its_request(tmp_path: Path) -> None:
    """A connection is reused for longer than one answer may take."""
    clock = FakeClock()
    with (
        patch.object(tls, "time", SimpleNamespace(monotonic=clock.boottime)),
        serving(lambda a: a.give({}), tmp_path) as (_, api),
    ):
        for _ in range(5):
            api.get(PATH)
            clock.pass_time(client._ANSWER_SECONDS * 0.9)


@pytest.mark.parametrize("drip", [d for d in DRIPS if d != "header"])
def test_dripping_watch_ends(drip: str, tmp_path: Path) -> None:
    """Otherwise it would hold its thread long after the cluster is closed."""
    begun = time.monotonic()
    with (
        patch.object(client, "_WATCH_SECONDS", 0.5),
        serving(dripping(drip), tmp_path) as (_, api),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        list(api.watch(PATH, {}))
    assert time.monotonic() - begun < 5.0


def test_compressed_answer_is_not_decompressed(tmp_path: Path) -> None:
    """A few kilobytes could become gigabytes in memory."""

    def zipped(answering: Answering) -> None:
        answering.give(b"\x1f\x8b", 200, **{"Content-Encoding": "gzip"})

    with serving(zipped, tmp_path) as (_, api):
        response = api.get(PATH)
    assert response.content == b"\x1f\x8b"


def test_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path) as server:
        changed_connection = connection(server)
    with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
        ApiClient("fake", changed_connection, user_agent="test").get(PATH)


def test_server_with_another_ca_gets_no_request(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path) as server:
        stranger = pki.Authority.make("stranger", pki.ec_key()).pair.certificate.decode()
        api = ApiClient("fake", replace(connection(server), ca=stranger), user_agent="test")
        with pytest.raises(ApiServerUnavailable) as caught:
            api.get(PATH)
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.detail
    assert server.requests == []


def intermediate() -> pki.Authority:
    """Return an intermediate CA."""
    root, key = pki.Authority.make("root", pki.ec_key()), pki.ec_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")])
    builder = pki._builder(name, root.certificate.subject, key)
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    builder = builder.add_extension(constraints, critical=True)
    return pki.Authority(certificate=builder.sign(root.key, SHA256()), key=key)


def test_intermediate_ca_is_trusted_without_its_root(tmp_path: Path) -> None:
    """A user may bring an intermediate CA; the kubeconfig then has no root."""
    with api_server(lambda a: a.give({}), tmp_path, authority=intermediate()) as server:
        api = ApiClient("fake", connection(server), user_agent="test")
        assert api.get(PATH).content == b"{}"
        api.close()


def test_server_name_of_the_kubeconfig_is_verified(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path, names=("kubernetes",)) as server:
        with pytest.raises(ApiServerUnavailable):
            ApiClient("fake", connection(server), user_agent="test").get(PATH)
        named = replace(connection(server), server_name="kubernetes")
        api = ApiClient("fake", named, user_agent="test")
        assert api.get(PATH).content == b"{}"
        api.close()


def test_watch_yields_events_however_they_are_cut(tmp_path: Path) -> None:
    chunks = [b'{"type":"ADDED"', b',"object":{}}\n{"type":', b'"DELETED","object":{}}\n\n']
    with serving(lambda a: a.give_chunks(iter(chunks)), tmp_path) as (server, api):
        events = list(api.watch(PATH, {"resourceVersion": "7"}))
    assert [json.loads(event)["type"] for event in events] == ["ADDED", "DELETED"]
    assert server.requests[0].path == f"{PATH}?resourceVersion=7&watch=true"


@pytest.mark.parametrize("cut", [1, 7, 4096, 1 << 20])
def test_lines_are_found_however_they_are_cut(cut: int) -> None:
    lines = [b"a" * 5000, b"b", b"c" * 100, b"d"]
    text = b"\n\n".join(lines) + b"\nrest"
    chunks = [text[at : at + cut] for at in range(0, len(text), cut)]
    assert list(client._lines(chunks)) == lines


def test_joining_chunks_of_a_large_event_takes_linear_time() -> None:
    """Each chunk used to copy all chunks before it: 4 MiB in pieces of 64 bytes took minutes."""

    def seconds(size: int) -> float:
        chunks = itertools.chain(itertools.repeat(b"x" * 64, size // 64), [b"\n"])
        begun = time.process_time()
        assert [len(line) for line in client._lines(chunks)] == [size]
        return time.process_time() - begun

    seconds(1 << 16)
    assert seconds(client._MAX_EVENT) < 40 * max(seconds(client._MAX_EVENT // 8), 0.005)


def test_watch_of_an_expired_version_raises_expired(tmp_path: Path) -> None:
    with serving(lambda a: a.give({}, 410), tmp_path) as (_, api), pytest.raises(Expired):
        list(api.watch(PATH, {}))


def test_watch_with_another_status_is_unavailable(tmp_path: Path) -> None:
    with (
        serving(lambda a: a.give({}, 401), tmp_path) as (_, api),
        pytest.raises(ApiServerUnavailable, match="status 401"),
    ):
        list(api.watch(PATH, {}))


def test_endless_event_ends_the_watch(tmp_path: Path) -> None:
    with (
        patch.object(client, "_MAX_EVENT", 1 << 20),
        serving(lambda a: a.give_chunks(itertools.repeat(b"x" * 65536)), tmp_path) as (_, api),
        pytest.raises(ApiServerUnavailable, match="event of the API server is too large"),
    ):
        list(api.watch(PATH, {}))


def test_silent_watch_ends_without_an_error(tmp_path: Path) -> None:
    """An idle API server is silent too: idle clusters logged interruptions all day."""
    lines = iter([b'{"type":"BOOKMARK","object":{}}\n'])

    def silent(answering: Answering) -> None:
        answering.send_response(200)
        answering.send_header("Transfer-Encoding", "chunked")
        answering.end_headers()
        line = next(lines)
        answering.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        answering.wfile.flush()
        answering.rfile.read(1)

    with patch.object(client, "_SILENCE_SECONDS", 0.2), serving(silent, tmp_path) as (_, api):
        assert list(api.watch(PATH, {})) == [b'{"type":"BOOKMARK","object":{}}']


def test_server_that_does_not_answer_a_watch_is_unreachable(tmp_path: Path) -> None:
    """Unlike silence after the answer began, this is a server that hangs."""

    def hang(answering: Answering) -> None:
        answering.rfile.read(1)

    with (
        patch.object(client, "_SILENCE_SECONDS", 0.2),
        serving(hang, tmp_path) as (_, api),
        pytest.raises(ApiServerUnavailable, match="cannot be reached"),
    ):
        list(api.watch(PATH, {}))


def test_client_certificate_is_used_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process would leave temporary files with keys on disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    seen: list[object] = []

    def note_subject(answering: Answering) -> None:
        seen.append(answering.connection.getpeercert()["subject"])
        answering.give({})

    with api_server(note_subject, tmp_path) as server:
        pair = server.authority.client("signer", "group")
        shown = ClientCertificate(certificate=pair.certificate.decode(), key=pair.key.decode())
        changed_connection = replace(connection(server), token=None, certificate=shown)
        api = ApiClient("fake", changed_connection, user_agent="test")
        api.get(PATH)
        api.close()
    assert (("commonName", "signer"),) in seen[0]  # type: ignore[operator]
    assert not (tmp_path / "nowhere").exists()


def credentials() -> tuple[pki.Authority, pki.Pair]:
    authority = pki.Authority.make("test", pki.ec_key())
    return authority, authority.client("signer")


def context_of(ca: bytes, certificate: bytes, key: bytes) -> None:
    shown = ClientCertificate(certificate=certificate.decode(), key=key.decode())
    client_context(Connection(server="https://x", ca=ca.decode(), certificate=shown))


def test_certificate_and_key_that_do_not_match_are_refused() -> None:
    authority, pair = credentials()
    context_of(authority.pair.certificate, pair.certificate, pair.key)
    with pytest.raises(KubeconfigRefused, match="client certificate"):
        context_of(authority.pair.certificate, pair.certificate, authority.client("x").key)


def test_encrypted_key_is_refused_without_a_prompt() -> None:
    authority, pair = credentials()
    encrypted = pki.ec_key().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    with pytest.raises(KubeconfigRefused, match="client certificate"):
        context_of(authority.pair.certificate, pair.certificate, encrypted)


def test_ca_that_cannot_be_read_is_refused() -> None:
    _, pair = credentials()
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    with pytest.raises(KubeconfigRefused, match="CA"):
        context_of(broken, pair.certificate, pair.key)
