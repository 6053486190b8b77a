"""RSA keys with known primes that no library generates: weak, of unusual size, or invalid.

They sign by plain arithmetic, so that only the key of a request is wrong. A search from the round
numbers below, with the Fermat test, found the primes.
"""

import math
from dataclasses import dataclass, field

from common.requests.binding import sha256
from tests.builders import der

_RSA_ENCRYPTION = bytes.fromhex("300d06092a864886f70d0101010500")
_SHA256_DIGEST_INFO = bytes.fromhex("3031300d060960864801650304020105000420")


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRsa:
    """A modulus of two factors, and an exponent. Verification works without prime factors."""

    factors: tuple[int, int]
    exponent: int = 65537
    modulus: int = field(init=False)

    def __post_init__(self) -> None:
        """Multiply the factors."""
        object.__setattr__(self, "modulus", math.prod(self.factors))

    @property
    def unique(self) -> bytes:
        """The modulus in the form of a TPM's unique field."""
        return self.modulus.to_bytes((self.modulus.bit_length() + 7) // 8, "big")

    def spki(self) -> bytes:
        """Return the SubjectPublicKeyInfo."""
        key = der.encode(der.SEQUENCE, _integer(self.modulus) + _integer(self.exponent))
        return der.encode(der.SEQUENCE, _RSA_ENCRYPTION + der.encode(der.BIT_STRING, b"\0" + key))

    def sign(self, data: bytes) -> bytes:
        """Sign with RSASSA-PKCS1-v1_5 and SHA-256 (RFC 8017, section 8.2)."""
        size = (self.modulus.bit_length() + 7) // 8
        info = _SHA256_DIGEST_INFO + sha256(data)
        padded = b"\0\1" + b"\xff" * (size - len(info) - 3) + b"\0" + info
        signed = pow(int.from_bytes(padded, "big"), self._private_exponent(), self.modulus)
        return signed.to_bytes(size, "big")

    def _private_exponent(self) -> int:
        p, q = self.factors
        order = p * (p - 1) if p == q else math.lcm(p - 1, q - 1)
        return pow(self.exponent, -1, order)


def _integer(value: int) -> bytes:
    return der.encode(der.INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


_PRODUCT = math.prod(n for n in range(3, 168) if all(n % d for d in range(2, math.isqrt(n) + 1)))


def _roca_prime(top: int, steps: int, exponent: int) -> int:
    """Return a prime of Infineon's form: k*M + (65537^a mod M)."""
    return (top // _PRODUCT + steps) * _PRODUCT + pow(65537, exponent, _PRODUCT)


_P = (3 << 1022) + 1037
_NEXT = (3 << 1022) + 1697
_FAR = (7 << 1021) + 309

ROCA = OddRsa(factors=(_roca_prime(3 << 1022, 8, 7), _roca_prime(7 << 1021, 383, 1234)))
"""CVE-2017-15361."""
CLOSE_PRIMES = OddRsa(factors=(_P, _NEXT))
"""CVE-2022-26320: Fermat's method finds them at once."""
SQUARE = OddRsa(factors=(_P, _P))
SMALL_FACTOR = OddRsa(factors=(997, (3 << 2046) // 997 + 662))
EVEN = OddRsa(factors=(2, (3 << 2045) + 2345))
EXPONENT_1 = OddRsa(factors=(_P, _FAR), exponent=1)
"""Its signature is the padded digest itself, so anyone can sign."""
EXPONENT_3 = OddRsa(factors=(_P, _FAR), exponent=3)
EXPONENT_65539 = OddRsa(factors=(_P, _FAR), exponent=65539)
BITS_1024 = OddRsa(factors=((3 << 510) + 761, (7 << 509) + 15))
BITS_2040 = OddRsa(factors=(_P, (7 << 1013) + 5))
BITS_4096 = OddRsa(factors=(_P, (7 << 3069) + 1583))
BITS_4097 = OddRsa(factors=(_P, (7 << 3070) + 4021))
BITS_4104 = OddRsa(factors=(_P, (7 << 3077) + 1179))
