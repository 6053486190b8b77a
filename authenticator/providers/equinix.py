"""Equinix Metal: the device's UUID as cloud-init keeps it.

cluster-api-provider-packet writes `equinixmetal://<uuid>`, and its templates give kubelets
`equinixmetal://{{ v1.instance_id }}`. The metadata service, a public name, is not asked: it was to
end with the platform in June 2026, and whoever holds the name then could answer. Nothing of this is
in DMI: the UUID there is the mainboard's.
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

    def identity(self, deadline: Deadline) -> Identity:  # noqa: ARG002 - reading a file does not wait
        """See `Provider`."""
        known = object_member(instance_data(self._path), "v1")
        device = require_match(UUID, known.get("instance_id"), "v1.instance_id")
        name = known.get("local_hostname")
        return Identity(
            provider_id=f"equinixmetal://{device}",
            node_name=name.lower() if isinstance(name, str) and name else None,
        )
