"""The seam to the platforms that know the endorsement keys or the VM IDs of Machines (E2).

A platform made the virtual TPM of an instance, or its operator registered the TPM. What it answers
about an instance is trusted as much as an operator's registration. Source:
docs/decisions/0040-endorsement-keys-from-platforms.md.
"""

from typing import Final, Protocol

from signer.errors import PlatformAnswerPending
from signer.policy.policy import PlatformRules
from signer.seams import PlatformAnswer


class PlatformSource(Protocol):
    """Answers of platforms that arrived earlier; a call never waits for a platform."""

    def answer(
        self, namespace: str, provider_id: str, rules: PlatformRules, *, expected: str
    ) -> PlatformAnswer:
        """Return what the platform says about an instance.

        An answer without the `expected` EndorsementKey is at most one minute old. The Cluster of
        `namespace` pays for a query.

        Raises:
            PlatformAnswerPending: a query is under way, or is due; verify again.
            PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed: nothing is known.

        """


class _NoPlatforms:
    def answer(
        self, namespace: str, provider_id: str, rules: PlatformRules, *, expected: str
    ) -> PlatformAnswer:
        raise PlatformAnswerPending(
            "only the running signer queries the platform",
            detail=f"{rules.type}: {provider_id} of {namespace}, for {expected}",
        )


NO_PLATFORMS: Final[PlatformSource] = _NoPlatforms()
"""Where no platform is queried, such as in a replay: nothing is decided."""
