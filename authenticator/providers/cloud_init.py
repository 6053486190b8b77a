"""The instance data of cloud-init: the values that kubeadm templates are rendered from.

cloud-init writes them at each boot from the source of the platform (a config drive, a metadata
service), before any kubelet starts. Source: cloud-init, "Instance metadata", instance-data.json.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.providers.validation import decode_object

INSTANCE_DATA: Final = Path("/run/cloud-init/instance-data.json")
"""Readable by every user, so cloud-init leaves secrets out."""

SIZE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes: the file holds the whole configuration of cloud-init, with package lists of any length."""


def instance_data(path: Path) -> Mapping[str, object]:
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
