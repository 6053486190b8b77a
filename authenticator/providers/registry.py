"""From the setting `provider` to an answer that is safe to use.

Entry points are looked up by their exact name. Two of one name are refused, also when one of them
is built in: what is installed later must not answer in another's place.
"""

from importlib.metadata import entry_points
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, cast

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Address, Deadline
from authenticator.providers.provider import Factory, Identity, Provider
from common.errors import AttestationError
from common.node_identity import require_node_name, require_provider_id

GROUP: Final = "kubelet_authenticator_tpm.providers"
_INSTEAD: Final = "(or set providerID, --provider-id, and nodeName, --node-name, instead)"


def query_provider(setting: str, deadline: Deadline) -> Identity:
    """Ask the provider that the setting names, and check its answer.

    Raises ConfigurationInvalid, ProviderUnavailable, ProviderAnswerInvalid: in one line, with what
    can be done.
    """
    provider = load(setting)
    try:
        return _checked(provider.identity(deadline))
    except (ProviderUnavailable, ProviderAnswerInvalid) as error:
        raise type(error)(f"provider {setting}: {error.message} {_INSTEAD}") from error


def load(setting: str) -> Provider:
    """Make the provider of a setting, NAME or NAME:OPTION. Raises ConfigurationInvalid."""
    name, _, option = setting.partition(":")
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        raise ConfigurationInvalid(f"provider {name!r} is not installed; there are: {known}")
    if len(found) > 1:
        values = " and ".join(sorted(entry.value for entry in found))
        raise ConfigurationInvalid(f"provider {name!r} is there more than once: {values}")
    (entry,) = found
    try:
        make = cast("Factory", entry.load())
    except (ImportError, AttributeError) as error:
        raise ConfigurationInvalid(f"provider {name!r} cannot be loaded: {error}") from error
    return make(option)


def _checked(found: Identity) -> Identity:
    """Check what may be anybody's code: grammar, and types as far as the grammar needs them."""
    try:
        require_provider_id(found.provider_id)
        if found.node_name is not None:
            require_node_name(found.node_name)
    except (AttestationError, TypeError) as error:
        raise ProviderAnswerInvalid(str(error)) from error
    for address in found.addresses:
        _check_address(address)
    return found


def _check_address(address: Address) -> None:
    """Check that it is an IP address as such, or a DNS name; these have node names' grammar."""
    if isinstance(address, IPv4Address | IPv6Address):
        return
    try:
        require_node_name(address)
    except (AttestationError, TypeError):
        raise ProviderAnswerInvalid("an address is neither an IP address nor a DNS name") from None
    try:
        ip_address(address)
    except ValueError:
        return
    raise ProviderAnswerInvalid("an IP address is told as a name")
