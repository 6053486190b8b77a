"""What a request is verified against."""

from dataclasses import dataclass
from datetime import datetime

from signer.policy.policy import Policy
from signer.seams import Inventory
from signer.verify.platform_keys import NO_PLATFORMS, PlatformSource
from signer.verify.trace import CheckTrace, no_trace
from signer.verify.x509.trust_anchors import TrustAnchors


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
