"""Azure, by its instance metadata service.

Only the needed keys are requested: the whole document holds user data. Sources: Azure IMDS
reference; cloud-provider-azure `getLocalInstanceProviderID` and cluster-api-provider-azure, which
both write the resource ID with subscription and resource group in lower case and all else
unchanged.
"""

import re
from typing import Final

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Address, Deadline
from authenticator.providers.metadata import LINK_LOCAL, MetadataService
from authenticator.providers.provider import (
    Identity,
    decode_ip,
    decode_object,
    object_member,
    reject_option,
)

API_VERSION: Final = "2021-10-01"

_RESOURCE: Final = re.compile(
    r"(?P<subscription>/subscriptions/[0-9A-Fa-f-]{36}/)resourceGroups"
    r"(?P<group>/[-\w.()]{1,90}/)"
    r"(?P<machine>providers/Microsoft\.Compute"
    r"/(?:virtualMachineScaleSets/[-\w.]{1,64}/virtualMachines/[0-9]+|virtualMachines/[-\w.]{1,80}))",
    re.ASCII,
)


class Azure:
    """The provider `azure`."""

    def __init__(self, option: str, *, base_url: str = LINK_LOCAL) -> None:
        reject_option("azure", option)
        self._base_url = base_url

    def identity(self, deadline: Deadline) -> Identity:
        """See `Provider`."""
        with MetadataService(self._base_url, deadline, {"Metadata": "true"}) as service:
            resource = service.get(_leaf("compute/resourceId")).text
            name = service.get_optional(_leaf("compute/osProfile/computerName"))
            network = service.get_optional(_path("network/interface/0", "json"))
        return Identity(
            provider_id=_provider_id(resource),
            node_name=(name.text.lower() or None) if name is not None else None,
            addresses=() if network is None else _addresses(network.text),
        )


def _leaf(key: str) -> str:
    return _path(key, "text")


def _path(key: str, form: str) -> str:
    return f"/metadata/instance/{key}?api-version={API_VERSION}&format={form}"


def _provider_id(resource: str) -> str:
    match = _RESOURCE.fullmatch(resource)
    if match is None:
        raise ProviderAnswerInvalid("the resource ID is not that of a virtual machine")
    subscription, group = match["subscription"].lower(), match["group"].lower()
    return f"azure://{subscription}resourceGroups{group}{match['machine']}"


def _addresses(network: str) -> tuple[Address, ...]:
    """Return the first private address of each family, as cloud-provider-azure does."""
    interface = decode_object(network, "network interface")
    families = [object_member(interface, family).get("ipAddress") for family in ("ipv4", "ipv6")]
    return tuple(
        decode_ip(entries[0].get("privateIpAddress"), "private address")
        for entries in families
        if isinstance(entries, list) and entries and isinstance(entries[0], dict)
    )
