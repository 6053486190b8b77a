"""Requests to an API server that may be hostile: bounded, never redirected, and only over TLS."""

import gc
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
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
from signer.kube.decode import object_key
from signer.kube.transport import client, connection_pool, endpoint
from signer.kube.transport.client import ApiClient, PageTooLarge
from signer.kube.transport.kubeconfig import ClientCertificate, Connection
from signer.kube.transport.tls import client_context
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.clock import FakeClock
from tests.fakes.drips import DRIPS, dripping
from tests.harness import pki

PATH = "/api/v1/things"
MAX_RESPONSE = 1 << 20


@contextmanager
def serving(
    handler: Handler, directory: Path, *, names: tuple[str, ...] = ("127.0.0.1",)
) -> Iterator[tuple[FakeApiServer, ApiClient]]:
    with api_server(handler, directory, names=names) as server:
        api = ApiClient("fake", server.connection(), user_agent="test", max_response=MAX_RESPONSE)
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
        changed_connection = replace(server.connection(), token=None, token_file=file)
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


@pytest.mark.parametrize("drip", DRIPS)
def test_dripping_answer_is_abandoned(drip: str, tmp_path: Path) -> None:
    """Each byte renews the timeout of a socket: only a limit for the whole answer helps."""
    with patch.object(client, "ANSWER_SECONDS", 0.5):
        begun = time.monotonic()
        error = unavailable(dripping(drip), tmp_path)
        assert time.monotonic() - begun < 5.0
    assert "timed out" in error.detail


def test_deadline_of_an_answer_starts_with_its_request(tmp_path: Path) -> None:
    """A connection is reused for longer than one answer may take."""
    clock = FakeClock()
    with (
        patch.object(connection_pool, "time", SimpleNamespace(monotonic=clock.boottime)),
        serving(lambda a: a.give({}), tmp_path) as (_, api),
    ):
        for _ in range(5):
            api.get(PATH)
            clock.pass_time(endpoint.ANSWER_SECONDS * 0.9)


def test_compressed_answer_is_not_decompressed(tmp_path: Path) -> None:
    """A few kilobytes could become gigabytes in memory."""

    def zipped(answering: Answering) -> None:
        answering.give(b"\x1f\x8b", 200, **{"Content-Encoding": "gzip"})

    with serving(zipped, tmp_path) as (_, api):
        response = api.get(PATH)
    assert response.content == b"\x1f\x8b"


def test_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path) as server:
        changed_connection = server.connection()
    with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
        ApiClient("fake", changed_connection, user_agent="test").get(PATH)


def test_server_with_another_ca_gets_no_request(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path) as server:
        stranger = pki.Authority.make("stranger", pki.ec_key()).pair.certificate.decode()
        api = ApiClient("fake", replace(server.connection(), ca=stranger), user_agent="test")
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
        api = ApiClient("fake", server.connection(), user_agent="test")
        assert api.get(PATH).content == b"{}"
        api.close()


def test_server_name_of_the_kubeconfig_is_verified(tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path, names=("kubernetes",)) as server:
        with pytest.raises(ApiServerUnavailable):
            ApiClient("fake", server.connection(), user_agent="test").get(PATH)
        named = replace(server.connection(), server_name="kubernetes")
        api = ApiClient("fake", named, user_agent="test")
        assert api.get(PATH).content == b"{}"
        api.close()


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
        changed_connection = replace(server.connection(), token=None, certificate=shown)
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


def test_time_of_each_answer_is_observed_with_the_times_of_its_request(tmp_path: Path) -> None:
    """Also of a refusal: a replica that is forbidden everything may have a wrong clock, too."""
    observed: list[tuple[bytes, datetime, datetime]] = []
    with api_server(lambda request: request.give({}, 403), tmp_path) as server:
        api = ApiClient(
            "fake",
            server.connection(),
            user_agent="test",
            observe_date=lambda *times: observed.append(times),
        )
        with pytest.raises(ApiServerUnavailable):
            api.get(PATH)
        api.close()
    [(date, sent, received)] = observed
    written = parsedate_to_datetime(date.decode())
    assert sent - timedelta(seconds=1) < written <= received
