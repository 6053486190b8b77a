"""E1 and E2 on real parts: every kind of endorsement key joins, persistent or created again."""

from collections.abc import Mapping

import pytest

from common.tpm.public import EccParameters, PublicArea, RsaParameters
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.objects import Machine
from tests.harness.tpm import EndorsementKey
from tests.integration import csrs

pytestmark = pytest.mark.usefixtures("signer")

RSA, P256, P384 = EndorsementKey.RSA_2048, EndorsementKey.P_256, EndorsementKey.P_384
KINDS: Mapping[EndorsementKey, tuple[str, int]] = {
    RSA: ("rsa", 2048),
    P256: ("ecc", 0x0003),
    P384: ("ecc", 0x0004),
}
"""The plugin's setting, and the key that must result: its RSA bits, or its curve."""


def kind_of(public: bytes) -> int:
    parameters = PublicArea.from_tpm2b(public).parameters
    if isinstance(parameters, RsaParameters):
        return parameters.key_bits
    assert isinstance(parameters, EccParameters)
    return parameters.curve


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "made again"])
@pytest.mark.parametrize("key", KINDS, ids=lambda key: key.name)
def test_every_kind_of_key_joins(
    machines: Machines,
    fleet: Fleet,
    key: EndorsementKey,
    kept: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """The policy is Registered.

    The certificate shows with which of its keys a TPM was delivered.
    """
    key_type, kind = KINDS[key]
    tpm = machines.tpm(persistent=(key,), certificates=(key,))
    node = machines.power_on(tpm=tpm, settings={"endorsementKeyType": key_type})
    fleet.add_machine(node.tenant, Machine(node.name, annotations=node.registration(key)))
    if not kept:
        tpm.remove_persistent(key)
    assert node.call().status == 0
    [offer] = csrs.offers(node)
    assert kind_of(csrs.content(offer).ek_public) == kind


def test_a_key_without_certificate_joins(machines: Machines, fleet: Fleet) -> None:
    """A record is enough where the policy says so. Virtual TPMs often have no certificate."""
    node = machines.power_on(tpm=machines.tpm(certificates=()))
    fleet.add_machine(node.tenant, Machine(node.name, annotations=node.registration()))
    assert node.call().status == 0
    [offer] = csrs.offers(node)
    assert csrs.content(offer).ek_certificates == ()
