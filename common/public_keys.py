"""Public keys: read from a TPM's public area, and named by one digest.

A key that can be written in two ways would have two names, so everything is brought to one form
(docs/protocol.md section 4): rsaEncryption with NULL and e = 65537, or a named curve with an
uncompressed point. Weak but well-formed keys are the signer's business.
"""

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.tpm.constants import TPM_ECC_NIST_P256, TPM_ECC_NIST_P384
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
"""The two kinds of keys that the protocol has."""

RSA_EXPONENT: Final = 65537
"""The only RSA exponent that is taken; e = 1 and 3 occur in endorsement keys in the wild."""

CURVES: Final[Mapping[int, ec.EllipticCurve]] = MappingProxyType(
    {TPM_ECC_NIST_P256: ec.SECP256R1(), TPM_ECC_NIST_P384: ec.SECP384R1()}
)
"""The curves that are taken, by the TPM's number."""

_CURVE_NAMES: Final = frozenset(curve.name for curve in CURVES.values())
_RSA_SIZES: Final = frozenset({2048, 3072, 4096})


class InvalidKey(ValueError):
    """This is no valid key, or of a kind that the protocol does not have.

    Callers turn it into the leaf of common/errors.py that tells which of their keys is bad.
    """


def require_supported_key(public_key: PublicKeyTypes) -> PublicKey:
    """Return the key if it is RSA with an odd modulus and e = 65537, or on P-256 or P-384.

    Raises KeyInvalid.
    """
    match public_key:
        case rsa.RSAPublicKey() if _is_usual(public_key.public_numbers()):
            return public_key
        case ec.EllipticCurvePublicKey() if public_key.curve.name in _CURVE_NAMES:
            return public_key
        case _:
            raise InvalidKey("key is neither RSA with e = 65537 nor on P-256 or P-384")


def _is_usual(numbers: rsa.RSAPublicNumbers) -> bool:
    """Tell whether it can be a key: OpenSSL loads even moduli, and then verifies nothing."""
    return numbers.e == RSA_EXPONENT and numbers.n % 2 == 1


def canonical_spki(public_key: PublicKeyTypes) -> bytes:
    """Write the key as DER SubjectPublicKeyInfo in the one form that is digested and compared.

    Raises KeyInvalid as `accepted` does.
    """
    return spki(require_supported_key(public_key))


def spki(public_key: PublicKey) -> bytes:
    """Write a key that is accepted already, as `canonical_spki` does."""
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def spki_sha256(public_key: PublicKeyTypes) -> bytes:
    """Name the key: the SHA-256 of its canonical SubjectPublicKeyInfo, 32 bytes.

    Raises KeyInvalid as `canonical_spki` does.
    """
    return hashlib.sha256(canonical_spki(public_key)).digest()


def public_key_from_area(public: PublicArea) -> PublicKey:
    """Make the key of a TPM's public area, whatever it may be used for.

    RSA: 2048, 3072 or 4096 bits, all of them used, odd, exponent 0 or 65537. ECC: P-256 or P-384
    and a point on the curve. Raises KeyInvalid.
    """
    match public.parameters, public.unique:
        case RsaParameters() as parameters, bytes() as modulus:
            return _rsa_key(parameters, modulus)
        case EccParameters() as parameters, EccPoint() as point:
            return _ecc_key(parameters, point)
        case _:
            raise InvalidKey("parameters and unique field are of different key types")


def _rsa_key(parameters: RsaParameters, modulus: bytes) -> rsa.RSAPublicKey:
    if parameters.exponent not in {0, RSA_EXPONENT}:
        raise InvalidKey("RSA exponent is not 65537")
    n = int.from_bytes(modulus, "big")
    if parameters.key_bits not in _RSA_SIZES or len(modulus) * 8 != parameters.key_bits:
        raise InvalidKey("RSA modulus is not of a size that is taken")
    if n.bit_length() != parameters.key_bits or n % 2 == 0:
        raise InvalidKey("RSA modulus is even, or does not use all of its bits")
    return rsa.RSAPublicNumbers(RSA_EXPONENT, n).public_key()


def _ecc_key(parameters: EccParameters, point: EccPoint) -> ec.EllipticCurvePublicKey:
    curve = CURVES.get(parameters.curve)
    if curve is None:
        raise InvalidKey("curve is neither P-256 nor P-384")
    size = (curve.key_size + 7) // 8
    if len(point.x) > size or len(point.y) > size:
        raise InvalidKey("coordinate is longer than the field")
    uncompressed = b"\4" + point.x.rjust(size, b"\0") + point.y.rjust(size, b"\0")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, uncompressed)
    except ValueError:
        raise InvalidKey("point is not on the curve") from None
