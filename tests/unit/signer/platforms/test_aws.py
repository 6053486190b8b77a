"""Endorsement keys from Amazon EC2, against a server that answers as its API Reference says."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from socket import SHUT_RDWR

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms.aws import Aws
from signer.platforms.aws_api.aws_signature import AwsCredentials, signed_headers
from tests.fakes import ec2
from tests.fakes.api_server import FakeApiServer, Handler, api_server
from tests.fakes.ec2 import ACCESS_KEY, SECRET_KEY, FakeEc2
from tests.fakes.platforms import with_file

INSTANCE = "i-0123456789abcdef0"
PROVIDER_ID = f"aws:///eu-central-1a/{INSTANCE}"
RSA_TYPE, ECC_TYPE = "rsa-2048", "ecc-sec-p384"
KEYS = f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
DER = (
    ec.generate_private_key(ec.SECP384R1())
    .public_key()
    .public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
)


def credentials_file(directory: Path, *lines: str) -> Path:
    file = directory / "aws"
    file.write_text(KEYS + "\n".join(lines), encoding="utf-8")
    return file


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeApiServer]:
    ec2_service = FakeEc2(keys={(INSTANCE, ECC_TYPE): DER})
    with api_server(ec2_service.handle, tmp_path) as server:
        yield server


def platform(service: FakeApiServer, directory: Path) -> Aws:
    bundle = directory / "ca.crt"
    bundle.write_bytes(service.authority.pair.certificate)
    lines = f"endpoint_url = {service.url}", f"ca_bundle = {bundle}"
    return Aws(with_file(credentials_file(directory, *lines)))


def test_keys_of_both_types_are_queried(service: FakeApiServer, tmp_path: Path) -> None:
    """The instance has no RSA key here, as EC2 says with an error."""
    assert platform(service, tmp_path).endorsement_keys(PROVIDER_ID) == [DER]
    assert [RSA_TYPE in str(r.content) for r in service.requests] == [True, False]


def test_instance_that_does_not_exist_has_no_keys(service: FakeApiServer, tmp_path: Path) -> None:
    other = PROVIDER_ID.replace("abcdef0", "abcdef1")
    assert platform(service, tmp_path).endorsement_keys(other) == []


def test_changed_credentials_are_used_at_once(service: FakeApiServer, tmp_path: Path) -> None:
    aws = platform(service, tmp_path)
    file = tmp_path / "aws"
    good = file.read_text(encoding="utf-8")
    file.write_text(good.replace(ACCESS_KEY, "AKIDOTHER"), encoding="utf-8")
    with pytest.raises(PlatformQueryFailed) as caught:
        aws.endorsement_keys(PROVIDER_ID)
    assert caught.value.detail == "HTTP status 401, AuthFailure"
    file.write_text(good, encoding="utf-8")
    assert aws.endorsement_keys(PROVIDER_ID) == [DER]


def test_request_for_another_region_is_signed_for_it(
    service: FakeApiServer, tmp_path: Path
) -> None:
    aws = platform(service, tmp_path)
    with pytest.raises(PlatformQueryFailed):
        aws.endorsement_keys(PROVIDER_ID.replace("eu-central-1a", "us-gov-west-1b"))
    assert "/us-gov-west-1/ec2/" in service.requests[-1].headers["authorization"]


FAILED: dict[str, Handler] = {
    "no permission": lambda a: ec2.give_error(a, 403, "UnauthorizedOperation"),
    "redirect": lambda a: a.give(b"", 302, Location="https://example.org/"),
    "another instance": lambda a: a.give(ec2.answer("i-0123456789abcdef1", RSA_TYPE, DER)),
    "another key type": lambda a: a.give(ec2.answer(INSTANCE, ECC_TYPE, DER)),
    "another format": lambda a: a.give(ec2.answer(INSTANCE, RSA_TYPE, DER, keyFormat="tpmt")),
    "no base64": lambda a: a.give(ec2.answer(INSTANCE, RSA_TYPE, DER, keyValue="A*==")),
    "no ASCII": lambda a: a.give(ec2.answer(INSTANCE, RSA_TYPE, DER, keyValue="\xe9A==")),
    "two keys": lambda a: a.give(
        ec2.answer(INSTANCE, RSA_TYPE, DER, keyType="x</keyType><keyType>x")
    ),
    "no XML": lambda a: a.give(b"{}"),
    "error without a code": lambda a: a.give(b"<Response/>", 400),
}
UNAVAILABLE: dict[str, Handler] = {
    "throttled": lambda a: ec2.give_error(a, 503, "RequestLimitExceeded"),
    "throttled with 400": lambda a: ec2.give_error(a, 400, "Throttling"),
    "too many requests": lambda a: a.give(b"", 429),
    "outage": lambda a: ec2.give_error(a, 500, "InternalError"),
    "no answer": lambda a: a.connection.shutdown(SHUT_RDWR),
}


@pytest.mark.parametrize("name", [*FAILED, *UNAVAILABLE])
def test_other_answers_are_not_used(name: str, service: FakeApiServer, tmp_path: Path) -> None:
    service.handler = {**FAILED, **UNAVAILABLE}[name]
    with pytest.raises(PlatformQueryFailed if name in FAILED else PlatformUnavailable):
        platform(service, tmp_path).endorsement_keys(PROVIDER_ID)


def test_server_of_another_authority_gets_no_request(
    service: FakeApiServer, tmp_path: Path
) -> None:
    aws = Aws(with_file(credentials_file(tmp_path, f"endpoint_url = {service.url}")))
    with pytest.raises(PlatformUnavailable):
        aws.endorsement_keys(PROVIDER_ID)
    assert service.requests == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[default]\n",
        f"[other]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n",
        f"[default]\naws_secret_access_key = {SECRET_KEY}\n",
        f"aws_secret_access_key = {SECRET_KEY}\n",
        f"[default]\n{SECRET_KEY}\n",
        KEYS + "endpoint_url = http://127.0.0.1\n",
        KEYS + "endpoint_url = https://[\n",
        KEYS + "endpoint_url = https://127.0.0.1:port\n",
        KEYS + "endpoint_url = https://:443\n",
    ],
)
def test_credentials_that_cannot_be_used_are_reported_without_the_secret(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "aws"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PlatformQueryFailed) as caught:
        Aws(with_file(file)).endorsement_keys(PROVIDER_ID)
    assert SECRET_KEY not in caught.value.message + caught.value.detail


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("eu-central-1a", "eu-central-1"),
        ("ap-southeast-2c", "ap-southeast-2"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-wl1-bos-wlz-1", "us-east-1"),
        ("cn-north-1a", "cn-north-1"),
    ],
)
def test_location_is_the_region_of_the_zone(tmp_path: Path, zone: str, region: str) -> None:
    assert Aws(with_file(tmp_path)).location(f"aws:///{zone}/{INSTANCE}") == region


@pytest.mark.parametrize(
    "provider_id",
    [
        f"aws://eu-central-1a/{INSTANCE}",
        f"aws:///eu-central-1/{INSTANCE}",
        f"aws:///eu-central-1a/{INSTANCE}\n",
        f"aws:///eu-central-1a/{INSTANCE}&DryRun=true",
        "aws:///eu-central-1a/i-0123456789ABCDEF0",
        f"aws:///eu-central-1a.example.org/{INSTANCE}",
        f"gce:///eu-central-1a/{INSTANCE}",
    ],
)
def test_provider_id_of_another_form_has_no_location(tmp_path: Path, provider_id: str) -> None:
    with pytest.raises(ValueError, match="aws:///"):
        Aws(with_file(tmp_path)).location(provider_id)


@pytest.mark.parametrize(
    ("token", "names", "signature"),
    [
        (
            "",
            "content-type;host;x-amz-date",
            "0a71d44b9fcfc41710b226f309fbaaeb25d941cafd8a111470440ac266aff131",
        ),
        (
            "session/token+1",
            "content-type;host;x-amz-date;x-amz-security-token",
            "ab2372c25aaca5400f768b3387439e027761bd7c849b5a6f543b669d94a1d43d",
        ),
    ],
)
def test_signature_is_the_one_of_botocore(token: str, names: str, signature: str) -> None:
    """Made by `SigV4Auth` of botocore 1.44.5 for this request and time."""
    headers = signed_headers(
        b"Action=GetInstanceTpmEkPub&Version=2016-11-15&InstanceId=i-0123456789abcdef0"
        b"&KeyType=rsa-2048&KeyFormat=der",
        host="ec2.eu-central-1.amazonaws.com",
        region="eu-central-1",
        credentials=AwsCredentials(
            access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, session_token=token
        ),
        now=datetime(2026, 11, 22, 9, 30),  # noqa: DTZ001 # UTC
    )
    assert headers["authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/20261122/eu-central-1/ec2/aws4_request,"
        f" SignedHeaders={names}, Signature={signature}"
    )
    assert headers.get("x-amz-security-token", "") == token


def test_credentials_do_not_show_their_secrets() -> None:
    credentials = AwsCredentials(
        access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, session_token="token-secret"
    )
    assert SECRET_KEY not in repr(credentials)
    assert "token-secret" not in repr(credentials)
