"""What platforms answer, taken only in the forms that it has.

Anything may stand in a metadata service's place, on a machine that the setting does not fit: a
login page, another platform's service. So nothing is repaired, and nothing is guessed.
Each function raises ProviderAnswerInvalid; answers are not repeated in messages, for they may hold
anything.
"""

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from authenticator.errors import ProviderAnswerInvalid

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def require_match(pattern: re.Pattern[str], text: object, what: str) -> str:
    """Return the text if it is one and of the pattern, as a whole."""
    if not isinstance(text, str) or pattern.fullmatch(text) is None:
        raise ProviderAnswerInvalid(f"{what} is missing, or not of the form that it has")
    return text


def decode_object(content: str | bytes, what: str) -> Mapping[str, object]:
    """Return a JSON object."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProviderAnswerInvalid(f"{what} is not a JSON object")
    return found


def object_member(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return the object under the key, empty when there is none."""
    found = parent.get(key)
    return found if isinstance(found, dict) else {}


def decode_ip(text: object, what: str) -> IPv4Address | IPv6Address:
    """Return an IP address, which has no zone."""
    try:
        return ip_address(text if isinstance(text, str) and "%" not in text else "")
    except ValueError:
        raise ProviderAnswerInvalid(f"{what} is not an IP address") from None
