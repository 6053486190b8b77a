"""Scenarios in which a node joins by its endorsement certificate alone."""

from functools import cache

from signer.policy.policy import TrustMode
from signer.verify.x509.trust_anchors import TrustAnchors
from tests.builders.certificates import anchors, leaf, vendor
from tests.builders.scenario import Scenario, default_keys
from tests.builders.software_tpm import endorsement_key

ROOT, BELOW = vendor()


EK = default_keys()[0].private.public_key()


RSA_EK = endorsement_key(0).private.public_key()


@cache
def configured(*lists: bytes) -> TrustAnchors:
    """Load the vendor's authorities, once for each set of revocation lists."""
    return anchors(ROOT, BELOW, lists=lists)


@cache
def ordinary(*, by_rsa: bool = False) -> bytes:
    """Return the ordinary certificate of the TPM."""
    return leaf(BELOW, RSA_EK if by_rsa else EK)


def certified() -> Scenario:
    """Join by certificate alone."""
    scenario = Scenario(anchors=configured(), certificates=(ordinary(),))
    scenario.change_policy("endorsement_key", trust=TrustMode.CERTIFIED)
    scenario.change_machine(registered_keys=())
    return scenario
