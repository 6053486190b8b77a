"""The endorsement key templates are those of the TCG profile, and each matches its own keys."""

from dataclasses import replace

import pytest

from common.tpm.constants import ObjectAttributes
from common.tpm.endorsement_templates import TEMPLATES, find_template
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters

POLICY_A = "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
POLICY_B = "ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0"
POLICY_B_384 = (
    "b26e7d28d11a50bc53d882bcf5fd3a1a074148bb35d3b4e4cb1c0ad9bde419ca"
    "cb47ba09699646150f9fc000f3f80e12"
)
PROFILE = {
    "L-1": f"0001 000b 000300b2 0020 {POLICY_A} 0006 0080 0043 0010 0800 00000000 0100"
    + "00" * 256,
    "L-2": f"0023 000b 000300b2 0020 {POLICY_A} 0006 0080 0043 0010 0003 0010 0020"
    + "00" * 32
    + "0020"
    + "00" * 32,
    "H-1": f"0001 000b 000300f2 0020 {POLICY_B} 0006 0080 0043 0010 0800 00000000 0000",
    "H-2": f"0023 000b 000300f2 0020 {POLICY_B} 0006 0080 0043 0010 0003 0010 0000 0000",
    "H-3": f"0023 000c 000300f2 0030 {POLICY_B_384} 0006 0100 0043 0010 0004 0010 0000 0000",
    "H-6": f"0001 000c 000300f2 0030 {POLICY_B_384} 0006 0100 0043 0010 0c00 00000000 0000",
}
"""TPMT_PUBLIC of each template of the TCG EK Credential Profile."""


NAMES = pytest.mark.parametrize("name", TEMPLATES)


def key_of(name: str) -> PublicArea:
    """Fill the unique field of a template."""
    template = TEMPLATES[name]
    if isinstance(template.parameters, EccParameters):
        return replace(template, unique=EccPoint(x=b"x", y=b"y"))
    return replace(template, unique=b"modulus")


@NAMES
def test_template_is_the_profiles_to_the_byte(name: str) -> None:
    assert TEMPLATES[name].encode() == bytes.fromhex(PROFILE[name])


@NAMES
def test_key_is_found_by_its_own_template(name: str) -> None:
    assert find_template(key_of(name)) == name


def test_exponents_0_and_65537_are_one_template() -> None:
    key = key_of("L-1")
    assert isinstance(key.parameters, RsaParameters)
    written_out = replace(key, parameters=replace(key.parameters, exponent=65537))
    assert find_template(written_out) == "L-1"
    assert find_template(replace(key, parameters=replace(key.parameters, exponent=3))) is None


@NAMES
def test_key_with_another_attribute_has_no_template(name: str) -> None:
    key = key_of(name)
    for attribute in ObjectAttributes:
        changed = replace(key, attributes=key.attributes ^ attribute)
        assert find_template(changed) is None


@NAMES
def test_key_with_another_policy_has_no_template(name: str) -> None:
    assert find_template(replace(key_of(name), auth_policy=b"")) is None
