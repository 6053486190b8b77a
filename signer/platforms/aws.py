"""Endorsement keys of NitroTPM: `GetInstanceTpmEkPub` of Amazon EC2.

Source: Amazon EC2 API Reference, API_GetInstanceTpmEkPub, version 2016-11-15, and "Error codes for
the Amazon EC2 API". Built from the reference, and never run against the real service.
"""

import base64
import configparser
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from signer.errors import PlatformQueryFailed
from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms.aws_api.aws_answers import element, error_of_code
from signer.platforms.aws_api.aws_signature import AwsCredentials, signed_headers
from signer.platforms.aws_api.aws_web_identity import WebIdentity, assume_role
from signer.platforms.credentials import KeptCredentials, read_credentials_file, unusable
from signer.platforms.https import call
from signer.platforms.platform import parse_provider_id
from signer.policy.policy import PlatformRules

_PROVIDER_ID: Final = re.compile(
    r"aws:///(?P<region>[a-z]{2}(?:-[a-z]+){1,2}-[0-9]{1,2})(?:[a-z]|-[a-z0-9-]{1,40})"
    r"/(?P<instance>i-[0-9a-f]{8,17})"
)
"""Cluster API Provider AWS: `aws:///<zone>/<instance ID>`. A zone is its region and a letter, or a
suffix for a local or wavelength zone."""
_parse: Final = partial(parse_provider_id, _PROVIDER_ID, "aws:///<zone>/<instance ID>")
_KEY_TYPES: Final = ("rsa-2048", "ecc-sec-p384")
_NO_SUCH_KEY: Final = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "UnsupportedOperation"}
)
"""No such instance, or an instance without NitroTPM or without a key of this type.

The reference does not say which error an instance without NitroTPM gets. Any other code keeps the
request waiting.
"""
_SECTION: Final = "default"
_KEY_NAMES: Final = frozenset({"aws_access_key_id", "aws_secret_access_key"})
_SESSION_TOKEN: Final = "aws_session_token"  # noqa: S105 - the name, not the token
_ROLE_NAMES: Final = frozenset({"role_arn", "web_identity_token_file"})
_ROLE: Final = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]{1,512}", re.ASCII)
_WEB_IDENTITIES: Final = KeptCredentials[WebIdentity, AwsCredentials]()


class Aws:
    """One account of AWS; the location is the region."""

    def __init__(self, rules: PlatformRules) -> None:
        self._credentials_file = Path(rules.credentials_file)

    def location(self, provider_id: str) -> str:
        """Return the region of a provider ID."""
        return _parse(provider_id)["region"]

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        """Query the RSA key and the ECC key of an instance."""
        parsed = _parse(provider_id)
        region = parsed["region"]
        account = read_account(self._credentials_file)
        credentials = _credentials(account, region)
        keys = (
            _query(account, credentials, region, parsed["instance"], key_type)
            for key_type in _KEY_TYPES
        )
        return [key for key in keys if key is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccount:
    """The section `default` of a credentials file, with the names that AWS gives its keys."""

    identity: AwsCredentials | WebIdentity
    endpoint_url: str
    """Of EC2. Empty: the public endpoint of the region."""
    ca_bundle: Path | None


def read_account(path: Path) -> AwsAccount:
    """Read the account of a credentials file."""
    parser = configparser.RawConfigParser()
    content = read_credentials_file(path)
    try:
        parser.read_string(content.decode())
        section = parser[_SECTION]
    except (configparser.Error, UnicodeDecodeError, KeyError) as error:
        # The parser's message may quote a line, and so a secret.
        raise unusable(f"{path}: must have [default] ({type(error).__name__})") from None
    bundle = section.get("ca_bundle")
    return AwsAccount(
        identity=_read_identity(path, section),
        endpoint_url=section.get("endpoint_url", ""),
        ca_bundle=None if bundle is None else Path(bundle),
    )


def _read_identity(path: Path, section: Mapping[str, str]) -> AwsCredentials | WebIdentity:
    """Read an access key or a role: one of the two, and not a part of the other."""
    names = section.keys() & (_KEY_NAMES | {_SESSION_TOKEN} | _ROLE_NAMES)
    if names == _ROLE_NAMES and _ROLE.fullmatch(section["role_arn"]):
        return WebIdentity(
            role_arn=section["role_arn"], token_file=Path(section["web_identity_token_file"])
        )
    if names - {_SESSION_TOKEN} == _KEY_NAMES:
        return AwsCredentials(
            access_key_id=section["aws_access_key_id"],
            secret_access_key=section["aws_secret_access_key"],
            session_token=section.get(_SESSION_TOKEN, ""),
        )
    problem = (
        "[default] must have aws_access_key_id and aws_secret_access_key, "
        "or else role_arn and web_identity_token_file"
    )
    raise unusable(f"{path}: {problem}")


def _credentials(account: AwsAccount, region: str) -> AwsCredentials:
    identity = account.identity
    if isinstance(identity, AwsCredentials):
        return identity
    host = _public_host("sts", region)
    return _WEB_IDENTITIES.credentials(
        identity, datetime.now(UTC), lambda: assume_role(identity, host, account.ca_bundle)
    )


def _public_host(service: str, region: str) -> str:
    partition = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{service}.{region}.{partition}"


def _query(
    account: AwsAccount, credentials: AwsCredentials, region: str, instance: str, key_type: str
) -> bytes | None:
    """Return one key as DER; `None` if the instance has none of this type."""
    host = endpoint_host(account, region)
    parameters = {
        "Action": "GetInstanceTpmEkPub",
        "Version": "2016-11-15",
        "InstanceId": instance,
        "KeyType": key_type,
        "KeyFormat": "der",
    }
    body = urlencode(parameters).encode()
    headers = signed_headers(
        body,
        host=host,
        region=region,
        credentials=credentials,
        now=datetime.now(UTC),
    )
    answer = call("POST", f"https://{host}/", headers, body, account.ca_bundle)
    return read_answer(answer, instance, key_type)


def endpoint_host(account: AwsAccount, region: str) -> str:
    """Return HOST or HOST:PORT of the API for a region. Raises `PlatformQueryFailed`."""
    problem = unusable("endpoint_url must be https://HOST or https://HOST:PORT")
    try:
        parts = urlsplit(account.endpoint_url or f"https://{_public_host('ec2', region)}")
        # `port` raises ValueError if it is no number.
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise problem from None
    if not has_host or parts.scheme != "https" or parts.path not in {"", "/"} or parts.query:
        raise problem
    return parts.netloc


def read_answer(answer: HttpAnswer, instance: str, key_type: str) -> bytes | None:
    """Return the key of an answer as sent, `None` if the instance has none of this type.

    Raises `PlatformUnavailable`, `PlatformQueryFailed`.
    """
    if answer.status != HTTPStatus.OK:
        code = element(answer, "Code")
        if code in _NO_SUCH_KEY:
            return None
        raise error_of_code(answer.status, code)
    given = tuple(element(answer, name) for name in ("instanceId", "keyType", "keyFormat"))
    if given != (instance, key_type, "der"):
        detail = f"the answer is about {given}"
        raise PlatformQueryFailed("the platform answers another query", detail=detail)
    try:
        return base64.b64decode(element(answer, "keyValue"), validate=True)
    except ValueError as error:
        raise PlatformQueryFailed("the key of the platform is not base64") from error
