"""Signs requests to Amazon EC2 with Signature Version 4.

Source: AWS, "Create a signed AWS API request". The tests compare with signatures of botocore. It is
no dependency: it needs python-dateutil before 3, and the Kubernetes client needs a later one
(docs/decisions/0040-endorsement-keys-from-platforms.md).
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCredentials:
    """An access key, with a session token if it is temporary; `repr` never shows the secrets."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def signed_headers(
    body: bytes,
    *,
    host: str,
    region: str,
    credentials: AwsCredentials,
    now: datetime,
) -> Mapping[str, str]:
    """Return the headers of a POST request to EC2, path `/` without a query; `now` is in UTC.

    Host is signed, and is not in them: the connection adds it.
    """
    time = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        "host": host,
        "x-amz-date": time,
    }
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(headers)
    request = "\n".join(
        (
            "POST",
            "/",
            "",
            *(f"{name}:{value}" for name, value in headers.items()),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = (time[:8], region, "ec2", "aws4_request")
    text = "\n".join(
        (_ALGORITHM, time, "/".join(scope), hashlib.sha256(request.encode()).hexdigest())
    )
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{credentials.access_key_id}/{'/'.join(scope)}"
    authorization = f"Credential={credential}, SignedHeaders={names}, Signature={signature}"
    del headers["host"]
    return {**headers, "authorization": f"{_ALGORITHM} {authorization}"}
