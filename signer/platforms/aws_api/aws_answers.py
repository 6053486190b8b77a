"""Reads the XML answers of Amazon EC2 and of the AWS Security Token Service (STS).

Source: "Error codes for the Amazon EC2 API", "Common errors" of the STS API Reference.
"""

import re
from typing import Final

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms.https import invalid_answer, overloaded, refused

_MAX_TEXT: Final = 16 << 10
"""AWS states no limit for a session token. One of a role has about 1 KiB."""
_OVERLOAD: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled"}
)
"""AWS answers them with 503, and some with 400."""
_IDENTITY_PROVIDER_DOWN: Final = "IDPCommunicationError"
"""STS could not reach the issuer of a web identity token, and recommends to try again."""


def element(answer: HttpAnswer, name: str) -> str:
    """Return the text of the one element of a name.

    The names of an answer are unique. A pattern for texts without markup needs no XML parser.
    """
    pattern = rf"<{name}>([^<>&]{{1,{_MAX_TEXT}}})</{name}>"
    found = re.findall(pattern.encode(), answer.content)
    if len(found) != 1:
        raise invalid_answer(f"HTTP status {answer.status}, not one element {name}")
    # AWS may break base64 into lines.
    return b"".join(found[0].split()).decode("ascii", errors="replace")


def error_of_code(status: int, code: str) -> PlatformUnavailable | PlatformQueryFailed:
    """Return the error for an answer with an error code."""
    if code in _OVERLOAD or code == _IDENTITY_PROVIDER_DOWN:
        return overloaded(code)
    return refused(f"HTTP status {status}, {code}")
