"""Endorsement keys of Shielded VMs: `instances.getShieldedInstanceIdentity` of Compute Engine.

Source: Compute Engine API Reference, v1, instances.getShieldedInstanceIdentity. Built from the
reference, and never run against the real service.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from google.auth import identity_pool
from google.auth.exceptions import GoogleAuthError
from google.auth.transport import Request, Response
from google.oauth2 import service_account

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms.credentials import read_credentials_file, unusable
from signer.platforms.https import (
    UNEXPECTED_JSON,
    call,
    describe,
    invalid_answer,
    overloaded,
    refused,
)
from signer.platforms.platform import parse_provider_id
from signer.policy.policy import PlatformRules

_PROVIDER_ID: Final = re.compile(
    r"gce://(?P<project>(?:[a-z0-9.-]{1,100}:)?[a-z][a-z0-9-]{4,28}[a-z0-9])"
    r"/(?P<zone>[a-z]+-[a-z]+[0-9]{1,2}-[a-z])/(?P<name>[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
)
"""Cluster API Provider GCP: `gce://<project>/<zone>/<name>`. An old project has a domain."""
_parse: Final = partial(parse_provider_id, _PROVIDER_ID, "gce://<project>/<zone>/<name>")
_SCOPE: Final = "https://www.googleapis.com/auth/compute.readonly"
_EXTERNAL: Final = "external_account"
"""Workload identity federation: another issuer signs a token, and a file or a URL gives it."""
_KIND: Final = "compute#shieldedInstanceIdentity"
_KEYS: Final = ("encryptionKey", "eccP256EncryptionKey")
"""The endorsement keys; the signing keys are attestation keys of Google."""
_OVERLOAD: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"})
"""Reasons of errors with status 403 that are no refusal."""

Credentials = service_account.Credentials | identity_pool.Credentials


class Gce:
    """One account of Google Cloud; the location is the project."""

    def __init__(self, rules: PlatformRules) -> None:
        self._credentials_file = Path(rules.credentials_file)

    def location(self, provider_id: str) -> str:
        """Return the project of a provider ID."""
        return _parse(provider_id)["project"]

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        """Query the RSA key and the ECC key of an instance."""
        project, zone, name = _parse(provider_id).groups()
        credentials = read_credentials(self._credentials_file)
        url = (
            f"https://compute.{credentials.universe_domain}/compute/v1/projects/{project}"
            f"/zones/{zone}/instances/{name}/getShieldedInstanceIdentity"
        )
        headers = {"authorization": f"Bearer {_token(credentials)}"}
        return read_answer(call("GET", url, headers, None, None))


class _Transport(Request):
    """How google-auth sends requests: within our limits, and without its own retries."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ARG002 - `call` has its own
        **_: object,
    ) -> "_Response":
        return _Response(call(method, url, headers or {}, body, None))


class _Response(Response):
    """An answer in the form of google-auth."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    @property
    def data(self) -> bytes:
        return self._answer.content


def read_credentials(path: Path) -> Credentials:
    """Read the account of a credentials file."""
    content = read_credentials_file(path)
    try:
        return parse_credentials(content)
    except (*UNEXPECTED_JSON, UnsupportedAlgorithm, GoogleAuthError) as error:
        # The message may quote the key.
        problem = "must be the JSON key of a service account, or an external account"
        raise unusable(f"{path}: {problem} ({type(error).__name__})") from None


@lru_cache(maxsize=64)
def parse_credentials(content: bytes) -> Credentials:
    """Keep the credentials of each file, since they hold an access token for an hour."""
    fields = json.loads(content)
    if fields["type"] == _EXTERNAL:
        read = cast("Callable[..., Credentials]", identity_pool.Credentials.from_info)
    else:
        from_key = service_account.Credentials.from_service_account_info
        read = cast("Callable[..., Credentials]", from_key)
    return read(fields, scopes=[_SCOPE])


def _token(credentials: Credentials) -> str:
    try:
        if not credentials.valid:
            credentials.refresh(_Transport())  # type: ignore[no-untyped-call] # of google-auth
    except GoogleAuthError as error:
        raise unusable(str(error)[:500]) from error
    return str(credentials.token)


def read_answer(answer: HttpAnswer) -> Collection[bytes]:
    """Return the endorsement keys of an answer as DER.

    Raises `PlatformUnavailable`, `PlatformQueryFailed`.
    """
    if answer.status == HTTPStatus.NOT_FOUND:
        return []
    if answer.status != HTTPStatus.OK:
        raise _error(answer)
    try:
        return _read_identity(json.loads(answer.content))
    except (*UNEXPECTED_JSON, UnsupportedAlgorithm) as error:
        raise invalid_answer(repr(error)) from error


def _read_identity(identity: dict[str, Any]) -> Collection[bytes]:
    if identity["kind"] != _KIND:
        raise ValueError(f"the answer must be a {_KIND}")
    return [_read_key(identity[name]["ekPub"]) for name in _KEYS if name in identity]


def _read_key(pem: str) -> bytes:
    key = load_pem_public_key(pem.encode())
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _error(answer: HttpAnswer) -> PlatformUnavailable | PlatformQueryFailed:
    if answer.status == HTTPStatus.FORBIDDEN and _OVERLOAD & set(_reasons(answer.content)):
        return overloaded(describe(answer))
    return refused(describe(answer))


def _reasons(content: bytes) -> Collection[str]:
    """Return the reasons of an error; none if it cannot be read."""
    try:
        return [str(error["reason"]) for error in json.loads(content)["error"]["errors"]]
    except UNEXPECTED_JSON:
        return []
