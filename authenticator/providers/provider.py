"""The protocol of a provider, the identity that it returns, and checks of what a platform answers.

Third parties implement the protocol too, so `registry.query_provider` checks what they return.

On a machine of another platform, anything may answer at the address of a metadata service: a login
page, the service of that platform. So nothing is repaired or guessed, and each check raises
ProviderAnswerInvalid. Its message does not repeat the answer, which may hold anything.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid
from authenticator.model import Address, Deadline

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of this machine, as its platform has it."""

    provider_id: str
    """To the byte what the infrastructure provider writes into `Machine.spec.providerID`."""
    node_name: str | None
    """None if the platform does not have it; then it is the host name."""
    addresses: tuple[Address, ...] = ()
    """Private addresses at which the API server reaches the node; empty if not known."""


class Provider(Protocol):
    """One platform."""

    def identity(self, deadline: Deadline) -> Identity:
        """Query the platform, within a few seconds and before the deadline.

        Raises `ProviderUnavailable`, `ProviderAnswerInvalid`, `ConfigurationInvalid`.
        """
        ...


Factory = Callable[[str], Provider]
"""What an entry point names. Takes the option, which follows `NAME:` in the setting, or an empty
string; returns the provider. Raises `ConfigurationInvalid` for an unsupported option.
"""


def reject_option(name: str, option: str) -> None:
    """Raise ConfigurationInvalid if a provider without options is given one."""
    if option:
        raise ConfigurationInvalid(f"provider {name} has no option")


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
