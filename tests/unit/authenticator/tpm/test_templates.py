"""The templates equal those of the TCG profile, to the byte; digests are computed here."""

import hashlib
from dataclasses import replace

import pytest

from authenticator.tpm.device import KeyType
from authenticator.tpm.templates import (
    ATTESTATION_TEMPLATES,
    ENDORSEMENT_TEMPLATES,
    NV_CHAIN_FIRST,
    NV_CHAIN_LAST,
    POLICY_C,
    EndorsementTemplate,
    order_by_preference,
)
from common.tpm.constants import HASHES
from common.tpm.endorsement_templates import POLICY_A, POLICY_B
from common.tpm.public import EccPoint, PublicArea, RsaParameters
from tests.fakes.tpm import FakeTpm

TPM_RH_ENDORSEMENT = 0x4000000B
TPM_CC_POLICY_SECRET, TPM_CC_POLICY_OR = 0x151, 0x171
TEMPLATES = {template.name: template for template in ENDORSEMENT_TEMPLATES["auto"]}


def extended(algorithm: int, *parts: bytes) -> bytes:
    return hashlib.new(HASHES[algorithm], b"".join(parts)).digest()


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


@pytest.mark.parametrize("algorithm", POLICY_A)
def test_policy_a_is_policy_secret_with_the_endorsement_hierarchy(algorithm: int) -> None:
    start = bytes(hashlib.new(HASHES[algorithm]).digest_size)
    secret = extended(algorithm, start, number(TPM_CC_POLICY_SECRET), number(TPM_RH_ENDORSEMENT))
    assert extended(algorithm, secret, b"") == POLICY_A[algorithm]


@pytest.mark.parametrize("algorithm", POLICY_B)
def test_policy_b_is_a_or_c(algorithm: int) -> None:
    start = bytes(hashlib.new(HASHES[algorithm]).digest_size)
    branches = POLICY_A[algorithm], POLICY_C[algorithm]
    either = extended(algorithm, start, number(TPM_CC_POLICY_OR), *branches)
    assert either == POLICY_B[algorithm]


@pytest.mark.parametrize(
    ("name", "certificate", "handle"),
    [
        ("L-1", 0x01C00002, 0x81010001),
        ("L-2", 0x01C0000A, 0x81010002),
        ("H-1", 0x01C00012, 0x81010012),
        ("H-2", 0x01C00014, 0x81010014),
        ("H-3", 0x01C00016, 0x81010016),
        ("H-6", 0x01C0001C, 0x8101001C),
    ],
)
def test_nv_indices_are_those_of_the_profile(name: str, certificate: int, handle: int) -> None:
    template = TEMPLATES[name]
    assert (template.certificate_index, template.persistent_handle) == (certificate, handle)


def test_nv_range_of_the_chain_is_that_of_the_profile() -> None:
    assert (NV_CHAIN_FIRST, NV_CHAIN_LAST) == (0x01C00100, 0x01C001FF)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda template: template.name)
def test_policy_is_an_or_of_its_branches_or_has_none(template: EndorsementTemplate) -> None:
    algorithm = template.public.name_alg
    both = POLICY_A[algorithm], POLICY_C[algorithm]
    is_low = template.name.startswith("L-")
    assert template.policy_or == (() if is_low else both)
    assert template.public.auth_policy == (POLICY_A if is_low else POLICY_B)[algorithm]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (0, "0023 000b 00050472 0000 0010 0018 000b 0003 0010 0000 0000"),
        (1, "0001 000b 00050472 0000 0010 0014 000b 0800 00000000 0000"),
    ],
)
def test_attestation_templates_equal_the_protocol(template: int, expected: str) -> None:
    assert ATTESTATION_TEMPLATES[template].encode() == bytes.fromhex(expected)


def made_by(template: EndorsementTemplate) -> PublicArea:
    rsa = isinstance(template.public.parameters, RsaParameters)
    return replace(template.public, unique=b"\xaa" * 256 if rsa else EccPoint(x=b"x", y=b"y"))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=lambda template: template.name)
def test_key_matches_only_its_template(template: EndorsementTemplate) -> None:
    public = made_by(template).to_tpm2b()
    assert [other.name for other in TEMPLATES.values() if other.matches(public)] == [template.name]


def test_signing_key_does_not_match() -> None:
    assert not TEMPLATES["L-2"].matches(FakeTpm().attestation_key().public)


def test_bytes_that_are_no_key_do_not_match() -> None:
    assert not TEMPLATES["L-1"].matches(b"\x00\x02\x00\x08")


@pytest.mark.parametrize(
    ("key_type", "certified", "expected"),
    [
        ("auto", (), ["L-1", "H-1", "H-6", "L-2", "H-2", "H-3"]),
        ("auto", ("H-3", "L-2"), ["L-2", "H-3", "L-1", "H-1", "H-6", "H-2"]),
        ("rsa", ("L-2",), ["L-1", "H-1", "H-6"]),
        ("ecc", ("H-3",), ["H-3", "L-2", "H-2"]),
    ],
)
def test_certified_keys_are_preferred_and_then_rsa(
    key_type: KeyType, certified: tuple[str, ...], expected: list[str]
) -> None:
    indices = frozenset(TEMPLATES[name].certificate_index for name in certified)
    assert [template.name for template in order_by_preference(key_type, indices)] == expected
