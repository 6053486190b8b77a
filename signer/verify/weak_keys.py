"""Valid keys that are known to be weak (P3, A1, E1).

Arithmetic on the public key finds them: primes of Infineon's library (ROCA, CVE-2017-15361), primes
too close to each other (CVE-2022-26320), small factors, and trivial private keys on a curve.
"""

import math
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from common.public_keys import CURVES, PublicKey

_FERMAT_ROUNDS: Final = 16
"""The first round finds the primes of the keys in CVE-2022-26320."""

_SIEVE: Final = 5040
_RESIDUES: Final = frozenset(root * root % _SIEVE for root in range(_SIEVE))
"""Residues of squares. 4 % of all numbers have one, so few candidates need a square root."""


class WeakKey(ValueError):
    """The key is known to be weak. Each caller raises its own error, which names the key."""


def _primes(limit: int) -> Iterable[int]:
    return (n for n in range(3, limit) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def _powers(prime: int) -> frozenset[int]:
    return frozenset(pow(65537, exponent, prime) for exponent in range(prime))


_ROCA: Final = tuple((prime, _powers(prime)) for prime in _primes(168))
"""Primes p with the powers of 65537 modulo p.

Infineon's primes are k*M + (65537^a mod M), where M is the product of small primes. So such a
modulus is a power of 65537 modulo each of them.
"""

_SMALL_FACTORS: Final = math.prod(_primes(1000))

_TRIVIAL: Final = tuple(
    ec.derive_private_key(scalar, curve).public_key()
    for curve in CURVES.values()
    for scalar in (1, curve.group_order - 1)
)
"""The base points of P-256 and P-384, and their negatives."""


def reject_weak_key(key: PublicKey) -> None:
    """Raise WeakKey, which names the weakness, if the key is known to be weak."""
    if not isinstance(key, rsa.RSAPublicKey):
        if key in _TRIVIAL:
            raise WeakKey("the private key is trivial")
        return
    modulus = key.public_numbers().n
    if all(modulus % prime in powers for prime, powers in _ROCA):
        raise WeakKey("the modulus has the ROCA fingerprint (CVE-2017-15361)")
    if math.gcd(modulus, _SMALL_FACTORS) != 1:
        raise WeakKey("the modulus has a small factor")
    _require_distant_primes(modulus)


def _require_distant_primes(modulus: int) -> None:
    """Try Fermat's factorization for a few rounds.

    Only a candidate whose residue is that of a square needs a square root.
    """
    start = math.isqrt(modulus - 1) + 1
    residue = (start * start - modulus) % _SIEVE
    step = 2 * start % _SIEVE + 1
    for distance in range(_FERMAT_ROUNDS):
        if residue % _SIEVE in _RESIDUES and _is_square((start + distance) ** 2 - modulus):
            raise WeakKey("the primes of the modulus are too close to each other")
        residue += step
        step += 2


def _is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number
