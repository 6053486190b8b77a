"""Roles of AWS for a token, against a server that answers as the STS API Reference says."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms import aws
from signer.platforms.aws import Aws
from signer.platforms.credentials import RENEWED_BEFORE, KeptCredentials
from tests.fakes import sts
from tests.fakes.api_server import Answering, FakeApiServer, Handler, api_server
from tests.fakes.ec2 import ACCESS_KEY, SECRET_KEY, FakeEc2
from tests.fakes.platforms import with_file
from tests.fakes.sts import ROLE, SESSION_TOKEN, FakeSts

EC2_HOST, STS_HOST = "ec2.eu-central-1.amazonaws.com", "sts.eu-central-1.amazonaws.com"
INSTANCE = "i-0123456789abcdef0"
PROVIDER_ID = f"aws:///eu-central-1a/{INSTANCE}"
KEY = b"the key of the instance"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"


@pytest.fixture
def service() -> FakeSts:
    return FakeSts(TOKEN)


@pytest.fixture(autouse=True)
def server(
    service: FakeSts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeApiServer]:
    """Serve under the names of AWS: connections to them go to loopback."""
    ec2 = FakeEc2(
        keys={(INSTANCE, "rsa-2048"): KEY},
        signed_headers="content-type;host;x-amz-date;x-amz-security-token",
    )

    def handle(answering: Answering) -> None:
        {EC2_HOST: ec2.handle, STS_HOST: service.handle}[answering.headers["Host"]](answering)

    # Each test begins without credentials.
    monkeypatch.setattr(aws, "_WEB_IDENTITIES", KeptCredentials())
    with api_server(handle, tmp_path, names=(EC2_HOST, STS_HOST)) as running:
        running.answer_for_all_names(monkeypatch)
        (tmp_path / "ca.crt").write_bytes(running.authority.pair.certificate)
        (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="ascii")
        yield running


@pytest.fixture
def platform(tmp_path: Path) -> Aws:
    return Aws(with_file(credentials_file(tmp_path)))


def credentials_file(directory: Path, *lines: str) -> Path:
    file = directory / "aws"
    fixed = (
        "[default]",
        f"role_arn = {ROLE}",
        f"web_identity_token_file = {directory / 'token'}",
        f"ca_bundle = {directory / 'ca.crt'}",
    )
    file.write_text("\n".join((*fixed, *lines)), encoding="utf-8")
    return file


def test_role_is_assumed_with_the_token(platform: Aws, server: FakeApiServer) -> None:
    assert platform.endorsement_keys(PROVIDER_ID) == [KEY]
    assert server.requests[-1].headers["x-amz-security-token"] == SESSION_TOKEN


def test_credentials_of_the_role_serve_several_queries(platform: Aws, service: FakeSts) -> None:
    for _ in range(3):
        platform.endorsement_keys(PROVIDER_ID)
    assert service.calls == 1


def test_credentials_are_replaced_before_they_end(platform: Aws, service: FakeSts) -> None:
    service.lifetime = RENEWED_BEFORE - timedelta(seconds=1)
    platform.endorsement_keys(PROVIDER_ID)
    platform.endorsement_keys(PROVIDER_ID)
    assert service.calls == 2


def test_token_is_read_again_when_credentials_are_replaced(
    platform: Aws, service: FakeSts, tmp_path: Path
) -> None:
    service.lifetime = timedelta(0)
    platform.endorsement_keys(PROVIDER_ID)
    service.token = "rotated"
    (tmp_path / "token").write_text(service.token, encoding="ascii")
    assert platform.endorsement_keys(PROVIDER_ID) == [KEY]


def test_credentials_of_one_role_do_not_serve_another(
    platform: Aws, service: FakeSts, tmp_path: Path
) -> None:
    platform.endorsement_keys(PROVIDER_ID)
    other = tmp_path / "other"
    other.write_text("token of another account", encoding="ascii")
    file = credentials_file(tmp_path)
    file.write_text(file.read_text().replace(str(tmp_path / "token"), str(other)))
    with pytest.raises(PlatformQueryFailed, match="refuses the query") as caught:
        platform.endorsement_keys(PROVIDER_ID)
    assert "InvalidIdentityToken" in caught.value.detail
    assert service.calls == 2


NOW = datetime.now(UTC)
LATER = NOW + timedelta(hours=1)
FAILED: dict[str, Handler] = {
    "refused": lambda a: sts.give_error(a, 403, "AccessDenied"),
    "expired token": lambda a: sts.give_error(a, 400, "ExpiredTokenException"),
    "no XML": lambda a: a.give(b"<html>"),
    "two answers": lambda a: a.give(sts.answer(LATER) * 2),
    "no secret": lambda a: a.give(sts.answer(LATER, SecretAccessKey="")),
    "another form of time": lambda a: a.give(sts.answer(LATER, Expiration="2026-11-22")),
    "no time": lambda a: a.give(sts.answer(LATER, Expiration="2026-13-22T00:00:00Z")),
    "redirect": lambda a: a.give(b"", 302, Location="https://example.org"),
}
UNAVAILABLE: dict[str, Handler] = {
    "issuer not reachable": lambda a: sts.give_error(a, 400, "IDPCommunicationError"),
    "throttled": lambda a: sts.give_error(a, 400, "Throttling"),
    "outage": lambda a: a.give(b"", 503),
}


@pytest.mark.parametrize("name", [*FAILED, *UNAVAILABLE])
def test_other_answers_give_no_credentials(name: str, platform: Aws, server: FakeApiServer) -> None:
    server.handler = {**FAILED, **UNAVAILABLE}[name]
    with pytest.raises(PlatformQueryFailed if name in FAILED else PlatformUnavailable) as caught:
        platform.endorsement_keys(PROVIDER_ID)
    assert [request.headers["Host"] for request in server.requests] == [STS_HOST]
    assert SECRET_KEY not in caught.value.detail


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff", b"x" * 20_001])
def test_file_without_a_token_is_reported(
    content: bytes, platform: Aws, server: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(PlatformQueryFailed) as caught:
        platform.endorsement_keys(PROVIDER_ID)
    assert "must be a token" in caught.value.detail
    assert server.requests == []


def test_missing_token_is_reported(platform: Aws, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(PlatformQueryFailed) as caught:
        platform.endorsement_keys(PROVIDER_ID)
    assert "No such file" in caught.value.detail


@pytest.mark.parametrize(
    "text",
    [
        f"role_arn = {ROLE}",
        "web_identity_token_file = /token",
        "role_arn = administrator\nweb_identity_token_file = /token",
        f"role_arn = {ROLE}\nweb_identity_token_file = /token\naws_access_key_id = {ACCESS_KEY}",
        (
            f"role_arn = {ROLE}\nweb_identity_token_file = /token\naws_access_key_id = {ACCESS_KEY}"
            f"\naws_secret_access_key = {SECRET_KEY}"
        ),
    ],
)
def test_part_of_a_role_or_a_role_and_a_key_is_refused(
    text: str, platform: Aws, server: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "aws").write_text(f"[default]\n{text}\n", encoding="utf-8")
    with pytest.raises(PlatformQueryFailed) as caught:
        platform.endorsement_keys(PROVIDER_ID)
    assert "role_arn and web_identity_token_file" in caught.value.detail
    assert server.requests == []
