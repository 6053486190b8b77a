"""Worlds that several families of attacks happen in; everything is in order in each of them."""

from dataclasses import replace

from signer.policy import TrustMode
from tests.attacks.runner import World
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key

OTHER_ID = "metal://rack-1/slot-2"
OTHER_NODE = "node-2.example"
"""Another Machine of the cluster, and its node."""


def renewal() -> World:
    """Renew as the node itself."""
    world = Scenario()
    world.as_node()
    return world


def first_use() -> World:
    """Join where the first to come is believed."""
    world = Scenario()
    world.policy = replace(world.policy, trust=TrustMode.FIRST_USE)
    world.change_machine(registered_keys=())
    return world


def rsa_world() -> World:
    """Join with an RSA attestation key."""
    return _attesting("rsassa-2048-sha256")


def pss_world() -> World:
    """Join with an RSAPSS attestation key."""
    return _attesting("rsapss-2048-sha256")


def p384_world() -> World:
    """Join with an attestation key on P-384, whose signatures are over SHA-384."""
    return _attesting("ecdsa-p384-sha384")


def _attesting(scheme: str) -> World:
    """Join with an attestation key of a scheme, which the policy lists."""
    world = Scenario(ak=attestation_key(AK_KINDS[scheme]))
    world.policy = replace(world.policy, attestation_key_schemes=frozenset({scheme}))
    return world
