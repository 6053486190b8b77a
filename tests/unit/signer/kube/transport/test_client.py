"""Requests to an API server that may be hostile: bounded, never redirected, and only over TLS."""

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from common.errors import ApiServerUnavailable
from signer.errors import KubeconfigRefused
from signer.fairness import compute_line
from signer.kinds.decode import object_key
from signer.kube.transport import endpoint
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import ClientCertificate, Connection
from signer.kube.transport.tls import client_context
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.clock import FakeClock
from tests.harness import pki

PATH = "/api/v1/things"
MAX_RESPONSE = 1 << 20


@contextmanager
def serving(handler: Handler, directory: Path) -> Iterator[tuple[FakeApiServer, ApiClient]]:
    with api_server(handler, directory) as server:
        api = ApiClient("fake", server.connection(), user_agent="test", max_response=MAX_RESPONSE)
        yield server, api
        api.close()
        gc.collect()


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


def test_expected_status_is_returned(tmp_path: Path) -> None:
    with serving(lambda a: a.give({}, 404), tmp_path) as (_, api):
        assert api.get(PATH, accepted=(200, 404)).status == 404


@pytest.mark.parametrize("content", [b"<html>", b"[1]", b'{"a":', b"[" * 100_000, b"\xff", b"{}"])
def test_answer_that_is_no_such_object_is_unavailable(content: bytes, tmp_path: Path) -> None:
    with serving(lambda a: a.give(content), tmp_path) as (_, api):
        response = api.get(PATH)
    with pytest.raises(ApiServerUnavailable, match="answer cannot be read"):
        response.read(object_key)


def test_endless_answer_is_abandoned(tmp_path: Path) -> None:
    def endless(answering: Answering) -> None:
        answering.give_chunks(itertools.repeat(b"x" * 65536))

    with (
        serving(endless, tmp_path) as (_, api),
        pytest.raises(ApiServerUnavailable, match="answer is too large"),
    ):
        api.get(PATH)


def test_deadline_of_an_answer_starts_with_its_request(tmp_path: Path) -> None:
    """A connection is reused for longer than one answer may take."""
    clock = FakeClock()
    with (
        patch.object(compute_line, "time", SimpleNamespace(monotonic=clock.boottime)),
        serving(lambda a: a.give({}), tmp_path) as (_, api),
    ):
        for _ in range(5):
            api.get(PATH)
            clock.pass_time(endpoint.ANSWER_SECONDS * 0.9)


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


AUTHORITY = pki.Authority.make("test", pki.ec_key())
PAIR = AUTHORITY.client("signer")
ENCRYPTED_KEY = load_pem_private_key(PAIR.key, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
)
BROKEN = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("ca", "key", "message"),
    [
        (AUTHORITY.pair.certificate, PAIR.key, None),
        (AUTHORITY.pair.certificate, AUTHORITY.client("x").key, "client certificate"),
        (AUTHORITY.pair.certificate, ENCRYPTED_KEY, "client certificate"),
        (BROKEN, PAIR.key, "CA"),
    ],
    ids=["good", "key of another certificate", "encrypted key, without a prompt", "broken CA"],
)
def test_ca_certificate_and_key_that_openssl_cannot_use_are_refused(
    ca: bytes, key: bytes, message: str | None
) -> None:
    shown = ClientCertificate(certificate=PAIR.certificate.decode(), key=key.decode())
    connection = Connection(server="https://x", ca=ca.decode(), certificate=shown)
    with nullcontext() if message is None else pytest.raises(KubeconfigRefused, match=message):
        client_context(connection)


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
