"""Public keys and their digests are equal to those of openssl."""

import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_der_public_key

from common.public_keys import InvalidKey, canonical_spki, public_key_from_area, spki_sha256
from common.tpm.constants import TPM_ECC_NIST_P256
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters
from tests import vectors
from tests.builders import odd_rsa

CASES = [
    (case.get("ek_public") or case["public"], case["spki"])
    for name in ("tpm_names", "credentials")
    for case in vectors.cases(name)
]
NAMES = {case["name"]: case for case in vectors.cases("tpm_names")}
RSA = PublicArea.from_tpm2b(bytes.fromhex(NAMES["ek-rsa"]["public"]))
ECC = PublicArea.from_tpm2b(bytes.fromhex(NAMES["ek-ecc"]["public"]))
assert isinstance(RSA.parameters, RsaParameters)
assert isinstance(RSA.unique, bytes)
assert isinstance(ECC.parameters, EccParameters)
assert isinstance(ECC.unique, EccPoint)
MODULUS, POINT = RSA.unique, ECC.unique


@pytest.mark.parametrize(("public", "spki"), CASES)
def test_key_of_a_public_area_is_equal_to_that_of_openssl(public: str, spki: str) -> None:
    key = public_key_from_area(PublicArea.from_tpm2b(bytes.fromhex(public)))
    assert canonical_spki(key).hex() == spki
    assert spki_sha256(key) == hashlib.sha256(bytes.fromhex(spki)).digest()


def test_exponent_0_and_65537_are_one_key() -> None:
    assert isinstance(RSA.parameters, RsaParameters)
    other = replace(RSA, parameters=replace(RSA.parameters, exponent=65537))
    assert spki_sha256(public_key_from_area(other)) == spki_sha256(public_key_from_area(RSA))


@pytest.mark.parametrize("size", [2048, 3072, 4096])
def test_rsa_keys_of_each_size_are_accepted(size: int) -> None:
    key = public_key_from_area(rsa_with(key_bits=size, unique=b"\xff" * (size // 8)))
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.public_numbers() == rsa.RSAPublicNumbers(65537, (1 << size) - 1)


@pytest.mark.parametrize("coordinate", ["x", "y"])
def test_coordinates_without_leading_zeros_are_the_same_key(coordinate: str) -> None:
    for private in range(1, 2000):
        numbers = ec.derive_private_key(private, ec.SECP256R1()).public_key().public_numbers()
        if getattr(numbers, coordinate) < 1 << 248:
            break
    else:
        pytest.fail("no point with a short coordinate")
    x, y = numbers.x.to_bytes(32, "big"), numbers.y.to_bytes(32, "big")
    padded = replace(ECC, unique=EccPoint(x=x, y=y))
    short = replace(ECC, unique=EccPoint(x=x.lstrip(b"\0"), y=y.lstrip(b"\0")))
    assert spki_sha256(public_key_from_area(short)) == spki_sha256(public_key_from_area(padded))


def test_compressed_point_is_the_same_key() -> None:
    spki = bytes.fromhex(NAMES["ek-ecc"]["spki"])
    parity = bytes([2 + POINT.y[-1] % 2])
    bits = b"\x03\x22\x00" + parity + POINT.x
    compressed = b"\x30\x39" + spki[2:23] + bits
    assert canonical_spki(load_der_public_key(compressed)) == spki


def rsa_with(*, key_bits: int = 2048, exponent: int = 0, unique: bytes = MODULUS) -> PublicArea:
    assert isinstance(RSA.parameters, RsaParameters)
    parameters = replace(RSA.parameters, key_bits=key_bits, exponent=exponent)
    return replace(RSA, parameters=parameters, unique=unique)


def ecc_with(*, curve: int = TPM_ECC_NIST_P256, unique: EccPoint = POINT) -> PublicArea:
    assert isinstance(ECC.parameters, EccParameters)
    return replace(ECC, parameters=replace(ECC.parameters, curve=curve), unique=unique)


@pytest.mark.parametrize(
    ("public", "message"),
    [
        (rsa_with(exponent=3), "exponent"),
        (rsa_with(exponent=1), "exponent"),
        (rsa_with(key_bits=1024, unique=MODULUS[:128]), "2048, 3072 or 4096"),
        (rsa_with(key_bits=2056, unique=b"\x81" + MODULUS), "2048, 3072 or 4096"),
        (rsa_with(key_bits=3072), "2048, 3072 or 4096"),
        (rsa_with(unique=MODULUS[1:]), "2048, 3072 or 4096"),
        (rsa_with(unique=b"\0" + MODULUS), "2048, 3072 or 4096"),
        (rsa_with(unique=b""), "2048, 3072 or 4096"),
        (rsa_with(unique=bytes([MODULUS[0] & 0x7F]) + MODULUS[1:]), "odd"),
        (rsa_with(unique=MODULUS[:-1] + bytes([MODULUS[-1] & 0xFE])), "odd"),
        (ecc_with(curve=0x0005), "P-384"),
        (ecc_with(unique=EccPoint(x=POINT.x, y=POINT.x)), "on the curve"),
        (ecc_with(unique=EccPoint(x=b"", y=b"")), "on the curve"),
        (ecc_with(unique=EccPoint(x=b"\xff" * 32, y=POINT.y)), "on the curve"),
        (ecc_with(unique=EccPoint(x=b"\0" + POINT.x, y=POINT.y)), "longer"),
        (ecc_with(unique=EccPoint(x=POINT.x, y=b"\0" + POINT.y)), "longer"),
        (replace(RSA, unique=POINT), "different key types"),
        (replace(ECC, unique=MODULUS), "different key types"),
    ],
)
def test_invalid_keys_are_refused(public: PublicArea, message: str) -> None:
    with pytest.raises(InvalidKey, match=message):
        public_key_from_area(public)


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32).public_key(),
        ec.derive_private_key(5, ec.SECP521R1()).public_key(),
        ec.derive_private_key(5, ec.SECP256K1()).public_key(),
        rsa.RSAPublicNumbers(3, int.from_bytes(MODULUS, "big")).public_key(),
        rsa.RSAPublicNumbers(65537, odd_rsa.EVEN.modulus).public_key(),
    ],
)
def test_unsupported_key_types_have_no_digest(key: PublicKeyTypes) -> None:
    with pytest.raises(InvalidKey, match="must be RSA with e = 65537"):
        spki_sha256(key)
