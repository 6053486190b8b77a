"""What a platform has to do: the protocol of the entry points in `node_attestation.platforms`."""

import re
from collections.abc import Callable, Collection
from typing import Protocol, runtime_checkable

from signer.policy.policy import PlatformRules


class Platform(Protocol):
    """A platform under the rules of a policy. Several threads call it at the same time."""

    def location(self, provider_id: str) -> str | None:
        """Return the region or project that a provider ID names, without any request.

        A policy lists the locations that it allows, and a tenant can write any provider ID. The
        caller compares. `None` if provider IDs of this platform name no location:
        `endorsement_keys` then compares where the instance is. Raises `ValueError` if the provider
        ID is not of this platform.
        """

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        """Return the endorsement keys of an instance as DER SubjectPublicKeyInfo.

        Empty if the platform says that there is no such instance, or that it has no TPM. Returns
        or raises within 10 seconds.

        Raises:
            PlatformLocationNotAllowed: the instance is elsewhere. Only a platform whose provider
                IDs name no location raises it.
            PlatformUnavailable: no answer, or too many requests. After a few of these in a row,
                the account is not queried for a while.
            PlatformQueryFailed: anything else that is no answer, such as a missing permission.

        """


@runtime_checkable
class VmPlatform(Protocol):
    """A platform whose quotes name the virtual machine: it gives the ID that they name.

    A policy names the authorities of such a platform in `attestationKey.certificateAuthorities`.
    """

    def location(self, provider_id: str) -> str | None:
        """See `Platform`."""

    def vm_id(self, provider_id: str) -> str | None:
        """Return the UUID of a virtual machine in lower case, `None` if there is no such one.

        Returns or raises as `Platform.endorsement_keys`.
        """


PlatformFactory = Callable[[PlatformRules], Platform | VmPlatform]
"""Makes a platform for each query, from the rules of a policy. Reads no file."""


def parse_provider_id(pattern: re.Pattern[str], form: str, provider_id: str) -> re.Match[str]:
    """Return the parts of a provider ID. Raises `ValueError` if it is of another form."""
    matched = pattern.fullmatch(provider_id)
    if matched is None:
        raise ValueError(f"not {form}")
    return matched
