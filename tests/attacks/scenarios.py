"""Valid scenarios that several families of attacks share."""

from signer.policy.policy import TrustMode
from tests.builders.scenario import Scenario, key_name
from tests.builders.software_tpm import AK_KINDS, attestation_key
from tests.fakes.platforms import RULES

OTHER_ID = "metal://rack-1/slot-2"
OTHER_NODE = "node-2.example"
"""The provider ID and the node name of another Machine of the Cluster."""


def renewal() -> Scenario:
    """Renew as the node itself."""
    scenario = Scenario()
    scenario.as_node()
    return scenario


def first_use() -> Scenario:
    """Join under trust mode FirstUse, without a registered key."""
    scenario = Scenario()
    scenario.change_policy("endorsement_key", trust=TrustMode.FIRST_USE)
    scenario.change_machine(registered_keys=())
    return scenario


def platform_scenario() -> Scenario:
    """Join with an endorsement key that only the platform of the Machine knows."""
    scenario = Scenario()
    scenario.change_policy("endorsement_key", platform=RULES)
    scenario.change_machine(registered_keys=())
    scenario.platforms.names[scenario.provider_id] = [key_name(scenario.ek)]
    return scenario


def rsa_scenario() -> Scenario:
    """Join with an RSA attestation key."""
    return _attesting("rsassa-2048-sha256")


def pss_scenario() -> Scenario:
    """Join with an RSAPSS attestation key."""
    return _attesting("rsapss-2048-sha256")


def p384_scenario() -> Scenario:
    """Join with an attestation key on P-384, whose signatures are over SHA-384."""
    return _attesting("ecdsa-p384-sha384")


def _attesting(scheme: str) -> Scenario:
    """Join with an attestation key of a scheme, which the policy lists."""
    scenario = Scenario(ak=attestation_key(AK_KINDS[scheme]))
    scenario.change_policy("attestation_key", schemes=frozenset({scheme}))
    return scenario
