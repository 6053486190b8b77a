"""The protocol of a provider, and the identity that it returns.

Third parties implement it too, so `registry.query_provider` checks what they return.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from authenticator.errors import ConfigurationInvalid
from authenticator.model import Address, Deadline


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
