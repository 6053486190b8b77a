"""Valid keys that are known to be weak."""

import math

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from signer.verify.weak_keys import WeakKey, reject_weak_key
from tests.builders.software_tpm import rsa_key

ROCA_PRODUCT = math.prod(n for n in range(3, 168) if all(n % d for d in range(2, n)))
"""Product of all odd primes to 167, as for keys of 1984 bits and more (CVE-2017-15361)."""
SMALL = math.factorial(1000)


def rsa_public(modulus: int) -> rsa.RSAPublicKey:
    """Make a public key, whatever its modulus."""
    return rsa.RSAPublicNumbers(65537, modulus).public_key()


def is_prime(n: int) -> bool:
    """Test with Fermat's little theorem, which is enough for test primes."""
    return math.gcd(n, ROCA_PRODUCT) == 1 and all(pow(base, n - 1, n) == 1 for base in (2, 3, 5))


def prime_from(start: int, step: int) -> int:
    """Find a prime in an arithmetic progression."""
    while not is_prime(start):
        start += step
    return start


@pytest.fixture(scope="module")
def far_prime() -> int:
    """Return a prime of an ordinary key."""
    return rsa_key().private_numbers().p


@pytest.fixture(scope="module")
def cofactor(far_prime: int) -> int:
    """Return a product of two primes that are not close."""
    return far_prime * prime_from(far_prime + 1_000_000, 2)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_ordinary_keys_are_accepted(curve: ec.EllipticCurve) -> None:
    """RSA and both curves."""
    reject_weak_key(rsa_key().public_key())
    reject_weak_key(ec.generate_private_key(curve).public_key())


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
@pytest.mark.parametrize("from_end", [False, True])
def test_trivial_private_keys_are_weak(curve: ec.EllipticCurve, *, from_end: bool) -> None:
    """1 and n - 1 share their x coordinate."""
    scalar = curve.group_order - 1 if from_end else 1
    key = ec.derive_private_key(scalar, curve).public_key()
    with pytest.raises(WeakKey, match="trivial"):
        reject_weak_key(key)


def test_roca_fingerprint_is_refused() -> None:
    """Primes of Infineon's form, with two different residues."""
    p, q = (
        prime_from(pow(65537, exponent, ROCA_PRODUCT) + ROCA_PRODUCT * (1 << 800), ROCA_PRODUCT)
        for exponent in (7, 1234)
    )
    with pytest.raises(WeakKey, match="ROCA"):
        reject_weak_key(rsa_public(p * q))


def test_modulus_with_one_roca_prime_is_accepted(far_prime: int) -> None:
    """Only the modulus has the fingerprint."""
    p = prime_from(pow(65537, 7, ROCA_PRODUCT) + ROCA_PRODUCT * (1 << 800), ROCA_PRODUCT)
    reject_weak_key(rsa_public(p * far_prime))


def test_close_primes_are_weak(far_prime: int) -> None:
    """Fermat's method finds the next prime at once."""
    near = prime_from(far_prime + 2, 2)
    with pytest.raises(WeakKey, match="close"):
        reject_weak_key(rsa_public(far_prime * near))


def modulus_at(distance: int) -> int:
    """Return a modulus that Fermat's method factors in this round, counted from 0."""
    mean = 3 << 1022
    half = math.isqrt(2 * mean * distance) + 1
    while math.gcd(mean * mean - half * half, SMALL) != 1:
        half += 1
    modulus = mean * mean - half * half
    assert mean - (math.isqrt(modulus - 1) + 1) == distance
    return modulus


@pytest.mark.parametrize("distance", range(1, 16))
def test_primes_within_sixteen_rounds_are_weak(distance: int) -> None:
    """Each round tries the next larger square."""
    with pytest.raises(WeakKey, match="close"):
        reject_weak_key(rsa_public(modulus_at(distance)))


def test_primes_beyond_sixteen_rounds_are_accepted() -> None:
    """More rounds would also refuse good keys."""
    reject_weak_key(rsa_public(modulus_at(16)))


def test_square_modulus_is_weak(far_prime: int) -> None:
    """Its primes are equal."""
    with pytest.raises(WeakKey, match="close"):
        reject_weak_key(rsa_public(far_prime * far_prime))


@pytest.mark.parametrize("factor", [3, 5, 167, 491, 997])
def test_small_factors_are_weak(cofactor: int, factor: int) -> None:
    """No generator leaves a factor below 1000; a larger factor is not searched for."""
    reject_weak_key(rsa_public(cofactor * 1009))
    with pytest.raises(WeakKey, match="small factor"):
        reject_weak_key(rsa_public(cofactor * factor))
