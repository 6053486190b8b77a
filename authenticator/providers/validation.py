"""Checks of the form of what a platform answers.

On a machine of another platform, anything may answer at the address of a metadata service: a login
page, the service of that platform. So nothing is repaired or guessed. Each function raises
ProviderAnswerInvalid. Messages do not repeat the answer, which may hold anything.
"""

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from authenticator.errors import ProviderAnswerInvalid

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def require_match(pattern: re.Pattern[str], text: object, what: str) -> str:
    """Return the value if it is a string that matches the pattern as a whole."""
    if not isinstance(text, str) or pattern.fullmatch(text) is None:
        raise ProviderAnswerInvalid(f"{what} is missing, or of another form than on this platform")
    return text


def decode_object(content: str | bytes, what: str) -> Mapping[str, object]:
    """Decode a JSON object."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProviderAnswerInvalid(f"{what} is not a JSON object")
    return document


def object_member(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return the object under the key, or an empty one."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def decode_ip(text: object, what: str) -> IPv4Address | IPv6Address:
    """Return an IP address; an IPv6 zone is not allowed."""
    try:
        return ip_address(text if isinstance(text, str) and "%" not in text else "")
    except ValueError:
        raise ProviderAnswerInvalid(f"{what} is not an IP address") from None
