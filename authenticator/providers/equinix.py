"""Equinix Metal: the UUID of the device, from the instance data of cloud-init.

cluster-api-provider-packet writes `equinixmetal://<uuid>`, and its templates give kubelets
`equinixmetal://{{ v1.instance_id }}`. The metadata service has a public DNS name and is not
queried: the platform was to end in June 2026, and the next owner of the name could answer. DMI does
not have the UUID: the one there is that of the mainboard.
"""

from pathlib import Path

from authenticator.model import Deadline
from authenticator.providers.cloud_init import INSTANCE_DATA, instance_data
from authenticator.providers.provider import Identity, reject_option
from authenticator.providers.validation import UUID, object_member, require_match


class Equinix:
    """The provider `equinix`."""

    def __init__(self, option: str, *, path: Path = INSTANCE_DATA) -> None:
        reject_option("equinix", option)
        self._path = path

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reads a local file
        """See `Provider`."""
        v1 = object_member(instance_data(self._path), "v1")
        device = require_match(UUID, v1.get("instance_id"), "v1.instance_id")
        name = v1.get("local_hostname")
        return Identity(
            provider_id=f"equinixmetal://{device}",
            node_name=name.lower() if isinstance(name, str) and name else None,
        )
