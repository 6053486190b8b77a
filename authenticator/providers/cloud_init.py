"""What cloud-init knows of this machine: the same values that kubeadm's templates are made from.

It writes them anew at each boot, from the platform's own source (a config drive, a metadata
service), before any kubelet starts. Source: cloud-init, "Instance metadata", instance-data.json.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.providers.validation import decode_object

INSTANCE_DATA: Final = Path("/run/cloud-init/instance-data.json")
"""Readable by everybody: secrets are taken out."""

SIZE_LIMIT: Final = 4 * 1024 * 1024
"""Bytes: it holds cloud-init's whole configuration, and package lists of any length."""


def instance_data(path: Path) -> Mapping[str, object]:
    """Read the file. Raises ProviderUnavailable, ProviderAnswerInvalid."""
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
