"""Credentials of a role of AWS, for a token that another issuer has signed.

The issuer can be any cluster that AWS knows as an identity provider, not only EKS.

Source: AWS STS API Reference, API_AssumeRoleWithWebIdentity, version 2011-06-15. Built from the
reference, and never run against the real service.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from signer.platforms.aws_api.aws_answers import element, error_of_code
from signer.platforms.aws_api.aws_signature import AwsCredentials
from signer.platforms.credentials import TemporaryCredentials, read_token
from signer.platforms.https import call, invalid_answer

_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
_SESSION_NAME: Final = "node-attestation-signer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebIdentity:
    """A role, and the file with the token of those who may assume it."""

    role_arn: str
    token_file: Path


def assume_role(
    identity: WebIdentity, host: str, ca_bundle: Path | None
) -> TemporaryCredentials[AwsCredentials]:
    """Return credentials of a role from the STS at `host`.

    Raises `PlatformUnavailable`, `PlatformQueryFailed`.
    """
    parameters = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": identity.role_arn,
        "RoleSessionName": _SESSION_NAME,
        "WebIdentityToken": read_token(identity.token_file),
    }
    headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
    answer = call("POST", f"https://{host}/", headers, urlencode(parameters).encode(), ca_bundle)
    if answer.status != HTTPStatus.OK:
        raise error_of_code(answer.status, element(answer, "Code"))
    expiration = element(answer, "Expiration")
    try:
        moment = datetime.fromisoformat(expiration if _TIME.fullmatch(expiration) else "")
    except ValueError as error:
        raise invalid_answer("Expiration is no time") from error
    credentials = AwsCredentials(
        access_key_id=element(answer, "AccessKeyId"),
        secret_access_key=element(answer, "SecretAccessKey"),
        session_token=element(answer, "SessionToken"),
    )
    return TemporaryCredentials(credentials, moment.astimezone(UTC))
