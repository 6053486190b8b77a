"""Metal3: the metadata of its config drive, from the instance data of cloud-init.

cluster-api-provider-metal3 puts `providerid` (`<namespace>/<host>/<machine>`) into the metadata of
each machine with a Metal3DataTemplate, and writes `metal3://<providerid>` into the Metal3Machine.
Up to v1.13 it may write `metal3://<uuid of the BareMetalHost>` instead: use the option `uuid`. DMI
has neither: the UUID there is that of the mainboard. The template decides which key has the name of
the node; if that is not the host name, set nodeName.
"""

import re
from pathlib import Path
from typing import Final

from authenticator.errors import ConfigurationInvalid
from authenticator.model import Deadline
from authenticator.providers.cloud_init import INSTANCE_DATA, instance_data
from authenticator.providers.provider import Identity
from authenticator.providers.validation import UUID, object_member, require_match

LEGACY: Final = "uuid"
_NAME: Final = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_PROVIDER_ID: Final = re.compile(rf"{_NAME}/{_NAME}/{_NAME}")


class Metal3:
    """The provider `metal3`; with the option `uuid`, IDs of the old form."""

    def __init__(self, option: str, *, path: Path = INSTANCE_DATA) -> None:
        if option not in {"", LEGACY}:
            raise ConfigurationInvalid(f"the only option of provider metal3 is {LEGACY}")
        self._key, self._pattern = ("uuid", UUID) if option else ("providerid", _PROVIDER_ID)
        self._path = path

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reads a local file
        """See `Provider`."""
        metadata = object_member(object_member(instance_data(self._path), "ds"), "meta_data")
        identifier = require_match(
            self._pattern, metadata.get(self._key), f"ds.meta_data.{self._key}"
        )
        return Identity(provider_id=f"metal3://{identifier}", node_name=None)
