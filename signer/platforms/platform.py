"""What a platform has to do: the protocol of the entry points in `node_attestation.platforms`."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol


class Platform(Protocol):
    """One account of a platform. Several threads call it at the same time."""

    def location(self, provider_id: str) -> str:
        """Return the region, project or server that a provider ID names, without any request.

        A policy lists the locations that it allows. A tenant can write any provider ID. Raises
        `ValueError` if it is none of this platform.
        """

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        """Return the endorsement keys of an instance as DER SubjectPublicKeyInfo.

        Empty if the platform says that there is no such instance, or that it has no TPM. Returns
        or raises within 10 seconds.

        Raises:
            PlatformUnavailable: no answer, or too many requests. After a few of these in a row,
                the account is not queried for a while.
            PlatformQueryFailed: anything else that is no answer, such as a missing permission.

        """


PlatformFactory = Callable[[Path], Platform]
"""Makes a platform for the account whose credentials are in a file. Reads no file."""
