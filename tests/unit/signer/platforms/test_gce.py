"""Endorsement keys from Compute Engine, against a server that answers as its API Reference says."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import AttestationError
from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms.gce import Gce
from tests.builders.software_tpm import rsa_key
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.platforms import with_file
from tests.harness import pki

COMPUTE, OAUTH = "compute.googleapis.com", "oauth2.googleapis.com"
STS, IAM = "sts.googleapis.com", "iamcredentials.googleapis.com"
PROVIDER_ID = "gce://team-a-prod/europe-west3-a/node-1"
PATH = (
    "/compute/v1/projects/team-a-prod/zones/europe-west3-a/instances/node-1"
    "/getShieldedInstanceIdentity"
)
ACCOUNT = "signer@team-a-prod.iam.gserviceaccount.com"
TOKEN = "ya29.example"
FEDERATED_TOKEN = "ya29.d.example"
SUBJECT_TOKEN = "token of a Kubernetes service account"
AUDIENCE = (
    "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/team-a"
    "/providers/management"
)
IMPERSONATION_PATH = f"/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"


def public_key(encoding: Encoding) -> bytes:
    return KEY.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)


KEY = ec.generate_private_key(ec.SECP256R1())
DER, PEM = public_key(Encoding.DER), public_key(Encoding.PEM).decode()
ED25519 = ed25519.Ed25519PrivateKey.generate().public_key()


def identity(**changes: object) -> dict[str, Any]:
    """Return the identity of an instance. The signing keys are no endorsement keys."""
    return {
        "kind": "compute#shieldedInstanceIdentity",
        "signingKey": {"ekPub": "not read"},
        "eccP256SigningKey": {"ekPub": "not read"},
        "eccP256EncryptionKey": {"ekPub": PEM, "ekCert": "not read"},
        **changes,
    }


def error(status: int, reason: str) -> Handler:
    body = {"error": {"code": status, "message": reason, "errors": [{"reason": reason}]}}
    return lambda answering: answering.give(body, status)


@dataclass(slots=True)
class FakeGoogle:
    """Google's token endpoints and Compute Engine."""

    identities: dict[str, Any] = field(default_factory=lambda: {PATH: identity()})
    tokens: int = 0
    impersonated: bool = False
    """Whether the federated token is for a service account, and not for Compute Engine."""
    compute: Handler | None = None
    oauth: Handler | None = None

    def handle(self, answering: Answering) -> None:
        host = answering.headers["Host"]
        assert host in {COMPUTE, OAUTH, STS, IAM}
        override = self.compute if host == COMPUTE else self.oauth
        if override is not None:
            override(answering)
        elif host == OAUTH:
            self._give_token(answering)
        elif host == STS:
            self._exchange_token(answering)
        elif host == IAM:
            self._impersonate(answering)
        elif answering.headers.get("Authorization") != f"Bearer {TOKEN}":
            error(401, "authError")(answering)
        elif answering.path in self.identities:
            answering.give(self.identities[answering.path])
        else:
            error(404, "notFound")(answering)

    def _give_token(self, answering: Answering) -> None:
        form = parse_qs(answering.server.requests[-1].content.decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        assert form["assertion"][0].count(".") == 2
        self.tokens += 1
        answering.give({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    def _exchange_token(self, answering: Answering) -> None:
        form = parse_qs(answering.server.requests[-1].content.decode())
        assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:token-exchange"]
        assert form["audience"] == [AUDIENCE]
        assert form["subject_token"] == [SUBJECT_TOKEN]
        self.tokens += 1
        token = FEDERATED_TOKEN if self.impersonated else TOKEN
        answering.give({"access_token": token, "expires_in": 3600, "token_type": "Bearer"})

    def _impersonate(self, answering: Answering) -> None:
        assert answering.headers["Authorization"] == f"Bearer {FEDERATED_TOKEN}"
        assert answering.path == IMPERSONATION_PATH
        expires_at = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        answering.give({"accessToken": TOKEN, "expireTime": expires_at})


@pytest.fixture
def google() -> FakeGoogle:
    return FakeGoogle()


@pytest.fixture(autouse=True)
def server(
    google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeApiServer]:
    """Serve under Google's names: connections to them go to loopback."""
    with api_server(google.handle, tmp_path, names=(COMPUTE, OAUTH, STS, IAM)) as running:
        running.answer_for_all_names(monkeypatch)
        bundle = tmp_path / "ca.crt"
        bundle.write_bytes(running.authority.pair.certificate)
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        yield running


@pytest.fixture
def gce(tmp_path: Path) -> Gce:
    return Gce(with_file(credentials_file(tmp_path)))


def credentials_file(directory: Path, **changes: object) -> Path:
    fields = {
        "type": "service_account",
        "project_id": "team-a-prod",
        "private_key_id": directory.name,
        "private_key": pki.key_pem(rsa_key()).decode(),
        "client_email": ACCOUNT,
        "token_uri": f"https://{OAUTH}/token",
        **changes,
    }
    file = directory / "gce.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    return file


def external_account_file(directory: Path, **changes: object) -> Path:
    """Write the configuration of workload identity federation, as gcloud writes it."""
    token = directory / "token"
    token.write_text(SUBJECT_TOKEN, encoding="utf-8")
    fields = {
        "universe_domain": "googleapis.com",
        "type": "external_account",
        "audience": AUDIENCE,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"https://{STS}/v1/token",
        "credential_source": {"file": str(token), "format": {"type": "text"}},
        **changes,
    }
    file = directory / "external.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    return file


def test_token_of_another_issuer_is_exchanged(google: FakeGoogle, tmp_path: Path) -> None:
    gce = Gce(with_file(external_account_file(tmp_path)))
    for _ in range(2):
        assert gce.endorsement_keys(PROVIDER_ID) == [DER]
    assert google.tokens == 1


def test_token_of_another_issuer_may_be_for_a_service_account(
    google: FakeGoogle, tmp_path: Path
) -> None:
    google.impersonated = True
    url = f"https://{IAM}{IMPERSONATION_PATH}"
    file = external_account_file(tmp_path, service_account_impersonation_url=url)
    assert Gce(with_file(file)).endorsement_keys(PROVIDER_ID) == [DER]


@pytest.mark.parametrize(
    "changes",
    [
        {"credential_source": {"file": "/missing"}},
        {"credential_source": {}},
        {"token_url": f"http://{STS}/v1/token"},
        {"type": "authorized_user"},
    ],
)
def test_external_account_that_cannot_be_used_is_reported(
    changes: dict[str, object], google: FakeGoogle, tmp_path: Path
) -> None:
    gce = Gce(with_file(external_account_file(tmp_path, **changes)))
    with pytest.raises(PlatformQueryFailed):
        gce.endorsement_keys(PROVIDER_ID)
    assert google.tokens == 0


def test_endorsement_keys_are_read_and_no_signing_keys(gce: Gce) -> None:
    assert gce.endorsement_keys(PROVIDER_ID) == [DER]


def test_instance_that_does_not_exist_has_no_keys(gce: Gce) -> None:
    assert gce.endorsement_keys(PROVIDER_ID + "2") == []


def test_instance_without_a_tpm_has_no_keys(gce: Gce, google: FakeGoogle) -> None:
    google.identities[PATH] = {"kind": "compute#shieldedInstanceIdentity"}
    assert gce.endorsement_keys(PROVIDER_ID) == []


def test_one_token_serves_several_queries_of_an_account(gce: Gce, google: FakeGoogle) -> None:
    for _ in range(3):
        gce.endorsement_keys(PROVIDER_ID)
    assert google.tokens == 1


def test_changed_credentials_are_used_at_once(gce: Gce, google: FakeGoogle, tmp_path: Path) -> None:
    gce.endorsement_keys(PROVIDER_ID)
    credentials_file(tmp_path, private_key_id="rotated")
    gce.endorsement_keys(PROVIDER_ID)
    assert google.tokens == 2


FAILED: dict[str, Handler] = {
    "no permission": error(403, "forbidden"),
    "refused without a reason": lambda a: a.give(b"<html>", 403),
    "refused, nested too deeply": lambda a: a.give(b"[" * 50_000, 403),
    "redirect": lambda a: a.give(b"", 302, Location="https://example.org/"),
    "no JSON": lambda a: a.give(b"<html>"),
    "nested too deeply": lambda a: a.give(b"[" * 50_000),
    "no object": lambda a: a.give([]),
    "another kind": lambda a: a.give(identity(kind="compute#instance")),
    "a number as PEM": lambda a: a.give(identity(encryptionKey={"ekPub": 1})),
    "no PEM": lambda a: a.give(identity(encryptionKey={"ekPub": "MIIB"})),
    "key without its text": lambda a: a.give(identity(encryptionKey={})),
}
UNAVAILABLE: dict[str, Handler] = {
    "throttled with 403": error(403, "rateLimitExceeded"),
    "throttled": error(429, "rateLimitExceeded"),
    "outage": error(503, "backendError"),
}


@pytest.mark.parametrize("name", [*FAILED, *UNAVAILABLE])
def test_other_answers_are_not_used(name: str, gce: Gce, google: FakeGoogle) -> None:
    google.compute = {**FAILED, **UNAVAILABLE}[name]
    with pytest.raises(PlatformQueryFailed if name in FAILED else PlatformUnavailable):
        gce.endorsement_keys(PROVIDER_ID)


@pytest.mark.parametrize(
    ("expected", "handler"),
    [
        (PlatformQueryFailed, lambda a: a.give({"error": "invalid_grant"}, 400)),
        (PlatformUnavailable, lambda a: a.give({"error": "internal_failure"}, 500)),
    ],
)
def test_token_that_is_refused_decides_nothing(
    expected: type[AttestationError], handler: Handler, gce: Gce, google: FakeGoogle
) -> None:
    google.oauth = handler
    with pytest.raises(expected):
        gce.endorsement_keys(PROVIDER_ID)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"private_key": "SECRET"}', '{"private_key": "SECRET', "\udcff"]
)
def test_credentials_that_cannot_be_used_are_reported_without_the_secret(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "gce.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PlatformQueryFailed) as caught:
        Gce(with_file(file)).endorsement_keys(PROVIDER_ID)
    assert "must be the JSON key of a service account" in caught.value.detail
    assert "SECRET" not in caught.value.detail


# A PKCS#8 key whose algorithm is a hash: 2.16.840.1.101.3.4.2.1
UNKNOWN_KEY_TYPE = """-----BEGIN PRIVATE KEY-----
MBYCAQAwDQYJYIZIAWUDBAIBBQAEAgQA
-----END PRIVATE KEY-----"""


@pytest.mark.parametrize("key", ["SECRET", UNKNOWN_KEY_TYPE], ids=["no PEM", "unknown algorithm"])
def test_private_key_that_cannot_be_read_is_reported(key: str, tmp_path: Path) -> None:
    with pytest.raises(PlatformQueryFailed) as caught:
        Gce(with_file(credentials_file(tmp_path, private_key=key))).endorsement_keys(PROVIDER_ID)
    assert "must be the JSON key of a service account" in caught.value.detail
    assert key not in caught.value.detail


def test_token_is_not_requested_without_tls(tmp_path: Path) -> None:
    file = credentials_file(tmp_path, token_uri=f"http://{OAUTH}/token")
    with pytest.raises(PlatformQueryFailed) as caught:
        Gce(with_file(file)).endorsement_keys(PROVIDER_ID)
    assert caught.value.detail == f"http://{OAUTH}/token"


@pytest.mark.parametrize("project", ["team-a-prod", "example.com:team-a-prod"])
def test_location_is_the_project(gce: Gce, project: str) -> None:
    assert gce.location(f"gce://{project}/us-central1-f/node-1") == project


@pytest.mark.parametrize(
    "provider_id",
    [
        "gce:///europe-west3-a/node-1",
        "gce://team-a-prod/europe-west3-a/",
        "gce://team-a-prod/europe-west3-a/node-1/../node-2",
        "gce://team-a-prod/../other-project/node-1",
        "gce://team-a-prod/europe-west3-a/node-1?alt=x",
        "gce://team-a-prod/europe-west3-a/node-1\n",
        "aws:///eu-central-1a/i-0123456789abcdef0",
    ],
)
def test_provider_id_of_another_form_has_no_location(gce: Gce, provider_id: str) -> None:
    with pytest.raises(ValueError, match="gce://"):
        gce.location(provider_id)
