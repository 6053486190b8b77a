"""Platforms whose identity is in the instance data of cloud-init: Equinix Metal and Metal3.

kubeadm templates are rendered from the same values. cloud-init writes them at each boot from the
source of the platform (a config drive, a metadata service), before any kubelet starts. Source:
cloud-init, "Instance metadata", instance-data.json. DMI has neither provider ID: the UUID there is
that of the mainboard.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authenticator.errors import ConfigurationInvalid, ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers.provider import (
    UUID,
    Identity,
    decode_object,
    object_member,
    reject_option,
    require_match,
)

INSTANCE_DATA: Final = Path("/run/cloud-init/instance-data.json")
"""Readable by every user, so cloud-init leaves secrets out."""

SIZE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes: the file holds the whole configuration of cloud-init, with package lists of any length."""

LEGACY: Final = "uuid"
_NAME: Final = r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?"
_PROVIDER_ID: Final = re.compile(rf"{_NAME}/{_NAME}/{_NAME}")


class Equinix:
    """The provider `equinix`: the UUID of the device.

    cluster-api-provider-packet writes `equinixmetal://<uuid>`, and its templates give kubelets
    `equinixmetal://{{ v1.instance_id }}`. The metadata service has a public DNS name and is not
    queried: the platform was to end in June 2026, and the next owner of the name could answer.
    """

    def __init__(self, option: str, *, path: Path = INSTANCE_DATA) -> None:
        reject_option("equinix", option)
        self._path = path

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reads a local file
        """See `Provider`."""
        v1 = object_member(_instance_data(self._path), "v1")
        device = require_match(UUID, v1.get("instance_id"), "v1.instance_id")
        name = v1.get("local_hostname")
        return Identity(
            provider_id=f"equinixmetal://{device}",
            node_name=name.lower() if isinstance(name, str) and name else None,
        )


class Metal3:
    """The provider `metal3`; with the option `uuid`, IDs of the old form.

    cluster-api-provider-metal3 puts `providerid` (`<namespace>/<host>/<machine>`) into the metadata
    of each machine with a Metal3DataTemplate, and writes `metal3://<providerid>` into the
    Metal3Machine. Up to v1.13 it may write `metal3://<uuid of the BareMetalHost>` instead. The
    template decides which key has the name of the node; if that is not the host name, set nodeName.
    """

    def __init__(self, option: str, *, path: Path = INSTANCE_DATA) -> None:
        if option not in {"", LEGACY}:
            raise ConfigurationInvalid(f"the only option of provider metal3 is {LEGACY}")
        self._key, self._pattern = ("uuid", UUID) if option else ("providerid", _PROVIDER_ID)
        self._path = path

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reads a local file
        """See `Provider`."""
        metadata = object_member(object_member(_instance_data(self._path), "ds"), "meta_data")
        identifier = require_match(
            self._pattern, metadata.get(self._key), f"ds.meta_data.{self._key}"
        )
        return Identity(provider_id=f"metal3://{identifier}", node_name=None)


def _instance_data(path: Path) -> Mapping[str, object]:
    """Return the content of the file. Raises `ProviderUnavailable`, `ProviderAnswerInvalid`."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise ProviderUnavailable(
            f"{path}: {error.strerror}: has cloud-init run on this machine?"
        ) from error
    if len(content) > SIZE_LIMIT:
        raise ProviderAnswerInvalid(f"{path} is over 4 MiB")
    return decode_object(content, str(path))
