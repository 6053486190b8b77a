"""From the setting `provider` to a checked identity.

Entry points are looked up by their exact name. Two of one name are refused, also if one of them is
built in: a package that is installed later must not replace a provider.
"""

from importlib.metadata import entry_points
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, cast

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Address, Deadline
from authenticator.providers.provider import Factory, Identity, Provider
from common.errors import AttestationError
from common.node_identity import require_dns_name, require_node_name, require_provider_id

GROUP: Final = "node_attestation.providers"
_ALTERNATIVE: Final = "(or set providerID, --provider-id, and nodeName, --node-name, instead)"


def query_provider(setting: str, deadline: Deadline) -> Identity:
    """Return the identity from the provider that the setting names, with its grammar checked.

    Raises `ConfigurationInvalid`, `ProviderUnavailable`, `ProviderAnswerInvalid`.
    """
    provider = load(setting)
    try:
        return _checked(provider.identity(deadline))
    except (ProviderUnavailable, ProviderAnswerInvalid) as error:
        raise type(error)(f"provider {setting}: {error.message} {_ALTERNATIVE}") from error


def load(setting: str) -> Provider:
    """Return the provider of a setting, NAME or NAME:OPTION. Raises `ConfigurationInvalid`."""
    name, _, option = setting.partition(":")
    entries = entry_points(group=GROUP, name=name)
    if not entries:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        raise ConfigurationInvalid(f"provider {name!r} is not installed; installed are: {known}")
    if len(entries) > 1:
        values = " and ".join(sorted(entry.value for entry in entries))
        raise ConfigurationInvalid(f"provider {name!r} is installed more than once: {values}")
    (entry,) = entries
    try:
        make = cast("Factory", entry.load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationInvalid(f"provider {name!r} cannot be loaded: {error}") from error
    return make(option)


def _checked(identity: Identity) -> Identity:
    """Return the identity if its members are of their grammar. Raises `ProviderAnswerInvalid`."""
    try:
        require_provider_id(identity.provider_id)
        if identity.node_name is not None:
            require_node_name(identity.node_name)
    except (AttestationError, TypeError) as error:
        raise ProviderAnswerInvalid(str(error)) from error
    for address in identity.addresses:
        _check_address(address)
    return identity


def _check_address(address: Address) -> None:
    """Raise unless it is an IP address object or a DNS name, in lower case."""
    if isinstance(address, IPv4Address | IPv6Address):
        return
    try:
        require_dns_name(address)
    except (AttestationError, TypeError):
        raise ProviderAnswerInvalid("an address is neither an IP address nor a DNS name") from None
    try:
        ip_address(address)
    except ValueError:
        return
    raise ProviderAnswerInvalid("an IP address must not be text")
