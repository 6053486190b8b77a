"""Google Compute Engine, by its metadata server.

Only the needed keys are requested: the whole tree holds user data and keys. Each response must have
the header `Metadata-Flavor: Google`, as the documentation of Google requires. The Node has
the name of the instance. Sources: Compute Engine, "View and query VM metadata";
cluster-api-provider-gcp `providerid.New` (`gce://<project>/<zone>/<name>`); cloud-provider-gcp.
"""

import re
from typing import Final

from authenticator.errors import ProviderAnswerInvalid
from authenticator.model import Deadline
from authenticator.providers.metadata import LINK_LOCAL, MetadataService
from authenticator.providers.provider import Identity, decode_ip, reject_option, require_match

FLAVOR: Final = {"Metadata-Flavor": "Google"}

_PROJECT: Final = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
"""The ID of a project; old projects of a domain have the domain in it."""

_ZONE: Final = re.compile(r"projects/[0-9]+/zones/[a-z0-9]+(?:-[a-z0-9]+)+")
_NAME: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")


class Gce:
    """The provider `gce`."""

    def __init__(self, option: str, *, base_url: str = LINK_LOCAL) -> None:
        reject_option("gce", option)
        self._base_url = base_url

    def identity(self, deadline: Deadline) -> Identity:
        """See `Provider`."""
        with MetadataService(self._base_url, deadline, FLAVOR) as service:
            project = require_match(_PROJECT, _get(service, "project/project-id"), "project ID")
            zone = require_match(_ZONE, _get(service, "instance/zone"), "zone").rpartition("/")[2]
            name = require_match(_NAME, _get(service, "instance/name"), "instance name")
            internal = service.get_optional(_path("instance/network-interfaces/0/ip"))
        return Identity(
            provider_id=f"gce://{project}/{zone}/{name}",
            node_name=name,
            addresses=() if internal is None else (decode_ip(internal.text, "internal address"),),
        )


def _get(service: MetadataService, key: str) -> str:
    response = service.get(_path(key))
    if response.headers.get("metadata-flavor") != "Google":
        raise ProviderAnswerInvalid("the response is not from the metadata server of Google")
    return response.text


def _path(key: str) -> str:
    return f"/computeMetadata/v1/{key}"
