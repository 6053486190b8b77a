"""Endorsement keys of NitroTPM: `GetInstanceTpmEkPub` of Amazon EC2.

Source: Amazon EC2 API Reference, API_GetInstanceTpmEkPub, version 2016-11-15, and "Error codes for
the Amazon EC2 API". Built from the reference, and never run against the real service.
"""

import base64
import binascii
import configparser
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms.aws_signature import AwsCredentials, signed_headers
from signer.platforms.https import Answer, call
from signer.policy import PlatformRules

_PROVIDER_ID: Final = re.compile(
    r"aws:///(?P<region>[a-z]{2}(?:-[a-z]+){1,2}-[0-9]{1,2})(?:[a-z]|-[a-z0-9-]{1,40})"
    r"/(?P<instance>i-[0-9a-f]{8,17})"
)
"""Cluster API Provider AWS: `aws:///<zone>/<instance ID>`. A zone is its region and a letter, or a
suffix for a local or wavelength zone."""
_KEY_TYPES: Final = ("rsa-2048", "ecc-sec-p384")
_NO_SUCH_KEY: Final = frozenset(
    {"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed", "UnsupportedOperation"}
)
"""No such instance, or an instance without NitroTPM or without a key of this type.

The reference does not say which error an instance without NitroTPM gets. Any other code keeps the
request waiting.
"""
_OVERLOAD: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"}
)
"""AWS answers them with 503, and some with 400."""
_SECTION: Final = "default"


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
        account = _read_account(self._credentials_file)
        keys = (_query(account, parsed["region"], parsed["instance"], t) for t in _KEY_TYPES)
        return [key for key in keys if key is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _AwsAccount:
    """The section `default` of a credentials file, with the names that AWS gives its keys."""

    credentials: AwsCredentials
    endpoint_url: str
    """Empty: the public endpoint of the region."""
    ca_bundle: Path | None


def _parse(provider_id: str) -> re.Match[str]:
    matched = _PROVIDER_ID.fullmatch(provider_id)
    if matched is None:
        raise ValueError("not aws:///<zone>/<instance ID>")
    return matched


def _read_account(path: Path) -> _AwsAccount:
    """Read the file for each query, so that rotated credentials are used at once."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        section = parser[_SECTION]
        credentials = AwsCredentials(
            access_key_id=section["aws_access_key_id"],
            secret_access_key=section["aws_secret_access_key"],
            session_token=section.get("aws_session_token", ""),
        )
    except OSError as e:
        raise _unusable(f"{path}: {e.strerror}") from e
    except (configparser.Error, UnicodeDecodeError, KeyError) as e:
        # The parser's message may quote a line, and so a secret.
        problem = "must have [default] with aws_access_key_id and aws_secret_access_key"
        raise _unusable(f"{path}: {problem} ({type(e).__name__})") from None
    bundle = section.get("ca_bundle")
    return _AwsAccount(
        credentials=credentials,
        endpoint_url=section.get("endpoint_url", ""),
        ca_bundle=None if bundle is None else Path(bundle),
    )


def _unusable(detail: str) -> PlatformQueryFailed:
    return PlatformQueryFailed("the credentials for the platform cannot be used", detail=detail)


def _query(account: _AwsAccount, region: str, instance: str, key_type: str) -> bytes | None:
    """Return one key as DER; `None` if the instance has none of this type."""
    partition = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = account.endpoint_url or f"https://ec2.{region}.{partition}"
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.path not in {"", "/"} or parts.query:
        raise _unusable("endpoint_url must be https://HOST or https://HOST:PORT")
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
        host=parts.netloc,
        region=region,
        credentials=account.credentials,
        now=datetime.now(UTC),
    )
    answer = call("POST", f"https://{parts.netloc}/", headers, body, account.ca_bundle)
    return _read_answer(answer, instance, key_type)


def _read_answer(answer: Answer, instance: str, key_type: str) -> bytes | None:
    if answer.status != HTTPStatus.OK:
        code = _element(answer, "Code")
        if code in _NO_SUCH_KEY:
            return None
        raise _error(answer.status, code)
    given = tuple(_element(answer, name) for name in ("instanceId", "keyType", "keyFormat"))
    if given != (instance, key_type, "der"):
        detail = f"the answer is about {given}"
        raise PlatformQueryFailed("the platform answers another query", detail=detail)
    try:
        return base64.b64decode(_element(answer, "keyValue"), validate=True)
    except binascii.Error as e:
        raise PlatformQueryFailed("the key of the platform is not base64") from e


def _error(status: int, code: str) -> PlatformUnavailable | PlatformQueryFailed:
    if code in _OVERLOAD:
        return PlatformUnavailable("the platform does not answer queries now", detail=code)
    detail = f"HTTP status {status}, {code}"
    return PlatformQueryFailed("the platform refuses the query", detail=detail)


def _element(answer: Answer, name: str) -> str:
    """Return the text of the one element of a name.

    The answers have a flat form. A pattern for texts without markup needs no XML parser.
    """
    found = re.findall(rf"<{name}>([^<>&]{{1,4096}})</{name}>".encode(), answer.content)
    if len(found) != 1:
        detail = f"HTTP status {answer.status}, not one element {name}"
        raise PlatformQueryFailed("the answer of the platform cannot be read", detail=detail)
    # AWS may break base64 into lines.
    return b"".join(found[0].split()).decode("ascii", errors="replace")
