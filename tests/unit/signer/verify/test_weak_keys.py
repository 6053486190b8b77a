"""Valid keys that are known to be weak."""

import math

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.public_keys import PublicKey
from signer.verify.weak_keys import WeakKey, reject_weak_key
from tests.builders import odd_rsa
from tests.builders.software_tpm import rsa_key

P384 = ec.SECP384R1()
SMALL = math.factorial(1000)


def rsa_public(modulus: int) -> rsa.RSAPublicKey:
    return rsa.RSAPublicNumbers(65537, modulus).public_key()


def on_p384(scalar: int) -> ec.EllipticCurvePublicKey:
    return ec.derive_private_key(scalar, P384).public_key()


def modulus_at(distance: int) -> int:
    """Return a modulus that Fermat's method factors in this round, counted from 0."""
    mean = 3 << 1022
    half = math.isqrt(2 * mean * distance) + 1
    while math.gcd(mean * mean - half * half, SMALL) != 1:
        half += 1
    modulus = mean * mean - half * half
    assert mean - (math.isqrt(modulus - 1) + 1) == distance
    return modulus


P, FAR = odd_rsa.EXPONENT_3.factors
ACCEPTED: dict[str, PublicKey] = {
    "RSA": rsa_key().public_key(),
    "P-256": ec.generate_private_key(ec.SECP256R1()).public_key(),
    "P-384": ec.generate_private_key(P384).public_key(),
    "one ROCA prime": rsa_public(odd_rsa.ROCA.factors[0] * FAR),
    "primes beyond sixteen rounds": rsa_public(modulus_at(16)),
    "a factor over 1000": rsa_public(P * FAR * 1009),
}
WEAK: dict[str, tuple[PublicKey, str]] = {
    "private key 1 on P-384": (on_p384(1), "trivial"),
    "private key n - 1 on P-384": (on_p384(P384.group_order - 1), "trivial"),
    "two ROCA primes": (rsa_public(odd_rsa.ROCA.modulus), "ROCA"),
    "equal primes": (rsa_public(odd_rsa.SQUARE.modulus), "close"),
    "close primes": (rsa_public(odd_rsa.CLOSE_PRIMES.modulus), "close"),
    **{
        f"primes within {distance + 1} rounds": (rsa_public(modulus_at(distance)), "close")
        for distance in range(1, 16)
    },
    **{
        f"the factor {factor}": (rsa_public(P * FAR * factor), "small factor")
        for factor in (3, 5, 167, 491, 997)
    },
}


@pytest.mark.parametrize("key", ACCEPTED.values(), ids=ACCEPTED)
def test_key_is_accepted(key: PublicKey) -> None:
    """Only two ROCA primes have the fingerprint. More searching would also refuse good keys."""
    reject_weak_key(key)


@pytest.mark.parametrize(("key", "weakness"), WEAK.values(), ids=WEAK)
def test_weak_key_is_refused(key: PublicKey, weakness: str) -> None:
    with pytest.raises(WeakKey, match=weakness):
        reject_weak_key(key)
