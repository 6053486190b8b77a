"""OpenStack, by Nova's metadata service.

The metadata do not have the region. It is the option (`openstack:RegionOne`): give it if the
identityRef of the OpenStackMachine names a region. cluster-api-provider-openstack then writes
`openstack://<region>/<uuid>`, else `openstack:///<uuid>`. Its templates name nodes by cloud-init's
`local_hostname`: the first label of `hostname`. Source: Nova user guide, "Metadata".
"""

import re
from typing import Final

from authenticator.errors import ConfigurationInvalid
from authenticator.model import Deadline
from authenticator.providers.metadata import LINK_LOCAL, MetadataService
from authenticator.providers.provider import UUID, Identity, decode_object, require_match

_REGION: Final = re.compile(r"[\w.-]{0,255}", re.ASCII)
_HOSTNAME: Final = re.compile(r"[\w.-]{1,255}", re.ASCII)


class OpenStack:
    """The provider `openstack`; its option is the region."""

    def __init__(self, option: str, *, base_url: str = LINK_LOCAL) -> None:
        if _REGION.fullmatch(option) is None:
            raise ConfigurationInvalid(
                f"provider openstack: {option!r} is not the name of a region"
            )
        self._region = option
        self._base_url = base_url

    def identity(self, deadline: Deadline) -> Identity:
        """See `Provider`."""
        with MetadataService(self._base_url, deadline, {}) as service:
            metadata = decode_object(
                service.get("/openstack/latest/meta_data.json").text, "metadata"
            )
        server = require_match(UUID, metadata.get("uuid"), "server's UUID")
        hostname = require_match(_HOSTNAME, metadata.get("hostname"), "host name")
        return Identity(
            provider_id=f"openstack://{self._region}/{server}",
            node_name=hostname.lower().partition(".")[0],
        )
