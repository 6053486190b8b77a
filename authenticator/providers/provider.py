"""What a provider is, and what it tells.

`Provider` is the seam; third parties implement it too, so nothing they return is used before
`registry.ask` has checked it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from authenticator.errors import ConfigurationInvalid
from authenticator.model import Address, Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this machine is, as its platform tells."""

    provider_id: str
    """To the byte what the infrastructure provider writes into `Machine.spec.providerID`."""
    node_name: str | None
    """None when the platform does not tell it; then it is the host name."""
    addresses: tuple[Address, ...] = ()
    """At which the API server reaches the node, as far as the platform tells: private ones only."""


class Provider(Protocol):
    """One platform."""

    def identity(self, deadline: Deadline) -> Identity:
        """Ask the platform, within a few seconds and before the deadline.

        Raises ProviderUnavailable, ProviderAnswerInvalid, ConfigurationInvalid.
        """
        ...


Factory = Callable[[str], Provider]
"""What an entry point names: makes the provider; the argument is what follows `NAME:` in the
setting, empty when nothing does. Raises ConfigurationInvalid for an option that it does not take.
"""


def reject_option(name: str, option: str) -> None:
    """Refuse the option of a provider that takes none. Raises ConfigurationInvalid."""
    if option:
        raise ConfigurationInvalid(f"provider {name} takes no option")
