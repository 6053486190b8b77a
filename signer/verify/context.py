"""What a request is verified against."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import ParamSpec, TypeVar

from common.errors import AttestationError
from signer.policy.policy import Policy
from signer.seams import Inventory
from signer.verify.checks import Step
from signer.verify.platform_keys import NO_PLATFORMS, PlatformSource
from signer.verify.refusals import AT_ONCE, Refusals, UnprovedError
from signer.verify.trace import CheckTrace, no_trace
from signer.verify.x509.trust_anchors import TrustAnchors

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationContext:
    """One Cluster's inventory, its policy and one instant.

    The challenge keys are not in it. Only an answer needs them, and offers and serving requests
    must not fail while their Secret cannot be read.
    """

    inventory: Inventory
    policy: Policy
    anchors: TrustAnchors
    now: datetime
    trace: CheckTrace = no_trace
    platforms: PlatformSource = NO_PLATFORMS
    refusals: Refusals = AT_ONCE

    def attempt(
        self, step: Step, check: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Make a check and trace its step; return `None` if it refused, and others go on."""
        try:
            result = check(*args, **kwargs)
        except (AttestationError, UnprovedError) as error:
            if not self.refusals.keeps(error):
                raise
            return None
        return self.trace(step, result)

    def without_calls(self) -> "VerificationContext":
        """Return the context of a further check: no platform is asked for what is refused."""
        return replace(self, platforms=NO_PLATFORMS) if self.refusals.any else self
