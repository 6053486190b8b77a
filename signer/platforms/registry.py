"""From the platform of a policy to the object that queries it.

Entry points are looked up by their exact name. Two of one name are refused, also if one of them is
built in: a package that is installed later must not replace a platform.
"""

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Final, cast

from signer.errors import PlatformQueryFailed
from signer.platforms.platform import Platform, PlatformFactory, VmPlatform
from signer.policy.policy import PlatformRules

GROUP: Final = "node_attestation.platforms"


def platform_of(rules: PlatformRules) -> Platform | VmPlatform:
    """Return the platform of a policy. Raises `PlatformQueryFailed` if it is not installed."""
    return _factory(rules.type)(rules)


@lru_cache(maxsize=64)
def _factory(name: str) -> PlatformFactory:
    """Import the platform of this name."""
    entries = entry_points(group=GROUP, name=name)
    if len(entries) != 1:
        known = ", ".join(sorted(entry_points(group=GROUP).names))
        many = "installed more than once" if entries else "not installed"
        raise PlatformQueryFailed(
            "the platform of the policy cannot be used",
            detail=f"platform {name} is {many}; installed are: {known}",
        )
    (entry,) = entries
    try:
        return cast("PlatformFactory", entry.load())
    except (ImportError, AttributeError) as error:
        raise PlatformQueryFailed(
            "the platform of the policy cannot be used",
            detail=f"platform {name} cannot be loaded: {error}",
        ) from error
