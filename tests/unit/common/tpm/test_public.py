"""TPMT_PUBLIC and Names are equal to those of swtpm and tpm2-tools."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tpm.constants import (
    BANKS,
    DIGEST_SIZES,
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_ECC,
    TPM_ALG_ECDH,
    TPM_ALG_ECDSA,
    TPM_ALG_KDF1_SP800_56A,
    TPM_ALG_OAEP,
    TPM_ALG_RSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ECC_NIST_P256,
    ObjectAttributes,
)
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters, Scheme, Symmetric
from common.tpm.reader import StructureMalformed
from tests import vectors

CASES = vectors.cases("tpm_names")
BY_NAME = {case["name"]: bytes.fromhex(case["public"]) for case in CASES}
RSA_AK = PublicArea.from_tpm2b(BY_NAME["ak-rsa"])
ECC_AK = PublicArea.from_tpm2b(BY_NAME["ak-ecc"])
RSA_EK = PublicArea.from_tpm2b(BY_NAME["ek-rsa"])

HASHES = st.sampled_from(sorted(DIGEST_SIZES))
U16, U32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
SYMMETRIC = st.none() | st.builds(Symmetric, algorithm=st.just(TPM_ALG_AES), key_bits=U16, mode=U16)


def schemes(*algorithms: int) -> st.SearchStrategy[Scheme | None]:
    """Generate no scheme, or one with these algorithms."""
    return st.none() | st.builds(Scheme, algorithm=st.sampled_from(algorithms), hash=HASHES)


@st.composite
def publics(draw: st.DrawFn) -> PublicArea:
    """Generate any well-formed public area."""
    parameters: RsaParameters | EccParameters
    unique: bytes | EccPoint
    if draw(st.booleans()):
        parameters = RsaParameters(
            symmetric=draw(SYMMETRIC),
            scheme=draw(schemes(TPM_ALG_RSASSA, TPM_ALG_RSAPSS, TPM_ALG_OAEP)),
            key_bits=draw(U16),
            exponent=draw(U32),
        )
        unique = draw(st.binary(max_size=512))
    else:
        parameters = EccParameters(
            symmetric=draw(SYMMETRIC),
            scheme=draw(schemes(TPM_ALG_ECDSA, TPM_ALG_ECDH)),
            curve=draw(U16),
            kdf=draw(schemes(TPM_ALG_KDF1_SP800_56A)),
        )
        coordinate = st.binary(max_size=66)
        unique = EccPoint(x=draw(coordinate), y=draw(coordinate))
    name_alg = draw(HASHES)
    size = DIGEST_SIZES[name_alg]
    return PublicArea(
        name_alg=name_alg,
        attributes=draw(st.sampled_from(ObjectAttributes) | st.just(ObjectAttributes(0))),
        auth_policy=draw(st.just(b"") | st.binary(min_size=size, max_size=size)),
        parameters=parameters,
        unique=unique,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_name_is_equal_to_that_of_the_tpm(case: dict[str, Any]) -> None:
    public = bytes.fromhex(case["public"])
    assert PublicArea.from_tpm2b(public).name().hex() == case["tpm_name"]
    assert PublicArea.from_tpm2b(public).to_tpm2b() == public


def test_attestation_keys_are_parsed_completely() -> None:
    attributes = ObjectAttributes(0x00050072)
    assert replace(RSA_AK, unique=b"") == PublicArea(
        name_alg=TPM_ALG_SHA256,
        attributes=attributes,
        auth_policy=b"",
        parameters=RsaParameters(
            symmetric=None,
            scheme=Scheme(algorithm=TPM_ALG_RSASSA, hash=TPM_ALG_SHA256),
            key_bits=2048,
            exponent=0,
        ),
        unique=b"",
    )
    assert ECC_AK.attributes == attributes
    assert ECC_AK.parameters == EccParameters(
        symmetric=None,
        scheme=Scheme(algorithm=TPM_ALG_ECDSA, hash=TPM_ALG_SHA256),
        curve=TPM_ECC_NIST_P256,
        kdf=None,
    )


def test_endorsement_key_is_parsed_completely() -> None:
    assert RSA_EK.attributes == ObjectAttributes(0x000300B2)
    assert len(RSA_EK.auth_policy) == 32
    assert RSA_EK.parameters == RsaParameters(
        symmetric=Symmetric(algorithm=TPM_ALG_AES, key_bits=128, mode=TPM_ALG_CFB),
        scheme=None,
        key_bits=2048,
        exponent=0,
    )


@pytest.mark.parametrize(
    ("good", "at", "algorithm"),
    [
        *((RSA_AK, 12, algorithm) for algorithm in (0x0014, 0x0016, 0x0017)),
        *((ECC_AK, 12, algorithm) for algorithm in (0x0018, 0x0019)),
        *((ECC_AK, 18, algorithm) for algorithm in (0x0007, 0x0020, 0x0021, 0x0022)),
    ],
    ids=str,
)
def test_schemes_are_those_of_the_registry(good: PublicArea, at: int, algorithm: int) -> None:
    """Each with SHA-256; the numbers are those of the TCG Algorithm Registry."""
    data = good.encode()
    after = at + 4 if data[at : at + 2] != b"\0\x10" else at + 2
    area = data[:at] + algorithm.to_bytes(2, "big") + b"\0\x0b" + data[after:]
    public = PublicArea.parse(area)
    assert public.encode() == area
    read = public.parameters.scheme if at == 12 else getattr(public.parameters, "kdf", None)
    assert read == Scheme(algorithm=algorithm, hash=0x000B)


@pytest.mark.parametrize(
    "public",
    [
        replace(RSA_AK, unique=b"\xff" * 512),
        replace(ECC_AK, unique=EccPoint(x=b"\xff" * 66, y=b"\xff" * 66)),
    ],
    ids=["RSA 4096", "P-521"],
)
def test_largest_keys_are_parsed(public: PublicArea) -> None:
    assert PublicArea.parse(public.encode()) == public


@pytest.mark.parametrize("bit", [1, 2, *range(4, 12), *range(16, 20)])
def test_attributes_of_the_specification_are_parsed(bit: int) -> None:
    area = changed(RSA_AK, 4, f"{1 << bit:08x}")
    assert PublicArea.parse(area).encode() == area


def test_digest_sizes_are_those_of_hashlib() -> None:
    assert {
        algorithm: hashlib.new(name).digest_size for name, algorithm in BANKS.items()
    } == DIGEST_SIZES


def test_type_follows_from_the_parameters() -> None:
    assert (RSA_AK.type, ECC_AK.type) == (TPM_ALG_RSA, TPM_ALG_ECC)


def test_exponent_0_and_65537_have_two_names() -> None:
    assert isinstance(RSA_AK.parameters, RsaParameters)
    other = replace(RSA_AK, parameters=replace(RSA_AK.parameters, exponent=65537))
    assert other.name() != RSA_AK.name()


def changed(public: PublicArea, at: int, value: str) -> bytes:
    """Overwrite bytes of an encoded public area."""
    data, new = public.encode(), bytes.fromhex(value)
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (changed(RSA_AK, 0, "0008"), "key type must be RSA or ECC"),
        (changed(RSA_AK, 2, "0012"), "hash algorithm is unknown"),
        (changed(RSA_AK, 2, "0010"), "hash algorithm is unknown"),
        (changed(RSA_AK, 4, "80050072"), "a reserved attribute is set"),
        (changed(RSA_AK, 4, "00050073"), "a reserved attribute is set"),
        (changed(RSA_AK, 8, "0041"), "buffer exceeds its size limit"),
        (changed(RSA_AK, 8, "0002"), "authPolicy must be empty or a digest of nameAlg"),
        (changed(RSA_AK, 10, "0013"), "symmetric algorithm must be null or AES"),
        (changed(RSA_AK, 12, "0018"), "scheme is unknown"),
        (changed(RSA_AK, 14, "0010"), "hash algorithm is unknown"),
        (changed(RSA_AK, 22, "0201"), "buffer exceeds its size limit"),
        (changed(RSA_AK, 22, "0101"), "data ends early"),
        (changed(RSA_AK, 22, "00ff"), "trailing bytes"),
        (changed(ECC_AK, 12, "0014"), "scheme is unknown"),
        (changed(ECC_AK, 18, "0014"), "scheme is unknown"),
        (changed(ECC_AK, 20, "0043"), "buffer exceeds its size limit"),
        (b"", "data ends early"),
    ],
)
def test_one_wrong_field_is_refused_by_its_rule(data: bytes, rule: str) -> None:
    with pytest.raises(StructureMalformed) as caught:
        PublicArea.parse(data)
    assert caught.value.rule == rule


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_truncated_tpm2b_is_refused(cut: int) -> None:
    with pytest.raises(StructureMalformed, match=r"data ends early|exceeds its size"):
        PublicArea.from_tpm2b(RSA_AK.to_tpm2b()[:-cut])


def test_tpm2b_with_trailing_bytes_is_refused() -> None:
    with pytest.raises(StructureMalformed, match="trailing bytes"):
        PublicArea.from_tpm2b(RSA_AK.to_tpm2b() + b"\0")


def test_area_shorter_than_its_tpm2b_is_refused() -> None:
    area = RSA_AK.encode() + b"\0"
    with pytest.raises(StructureMalformed, match="trailing bytes"):
        PublicArea.from_tpm2b(len(area).to_bytes(2, "big") + area)


def test_errors_name_position_and_rule_but_no_bytes() -> None:
    with pytest.raises(StructureMalformed) as caught:
        PublicArea.parse(changed(RSA_AK, 4, "80050072"))
    assert str(caught.value) == "a reserved attribute is set at byte 8"
    assert caught.value.position == 8


@given(publics())
def test_encoded_value_parses_to_itself(public: PublicArea) -> None:
    assert PublicArea.parse(public.encode()) == public
    assert PublicArea.from_tpm2b(public.to_tpm2b()) == public
