"""Public keys: parse a TPM's public area, and identify a key by one digest.

A key with two encodings would have two digests. So each key has one canonical encoding
(docs/protocol.md section 4): rsaEncryption with NULL and e = 65537, or a named curve with an
uncompressed point. The signer checks for weak keys (signer/verify/weak_keys.py).
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
"""The two key types of the protocol."""

RSA_EXPONENT: Final = 65537
"""The only supported RSA exponent. Some real endorsement keys have e = 1 or e = 3."""

CURVES: Final[Mapping[int, ec.EllipticCurve]] = MappingProxyType(
    {TPM_ECC_NIST_P256: ec.SECP256R1(), TPM_ECC_NIST_P384: ec.SECP384R1()}
)
"""The supported curves, by TPM_ECC_CURVE."""

_CURVE_NAMES: Final = frozenset(curve.name for curve in CURVES.values())
_RSA_SIZES: Final = frozenset({2048, 3072, 4096})


class InvalidKey(ValueError):
    """The key is invalid or of an unsupported type.

    Callers turn it into the error that names the key, such as `EndorsementKeyWeak`.
    """


def require_supported_key(public_key: PublicKeyTypes) -> PublicKey:
    """Return the key if it is RSA with an odd modulus and e = 65537, or on P-256 or P-384.

    Raises `InvalidKey`.
    """
    match public_key:
        case rsa.RSAPublicKey() if _is_supported(public_key.public_numbers()):
            return public_key
        case ec.EllipticCurvePublicKey() if public_key.curve.name in _CURVE_NAMES:
            return public_key
        case _:
            raise InvalidKey("key must be RSA with e = 65537, or on P-256 or P-384")


def _is_supported(numbers: rsa.RSAPublicNumbers) -> bool:
    """Check exponent and modulus. OpenSSL loads keys with an even modulus."""
    return numbers.e == RSA_EXPONENT and numbers.n % 2 == 1


def canonical_spki(public_key: PublicKeyTypes) -> bytes:
    """Return the canonical DER SubjectPublicKeyInfo, which is digested and compared.

    Raises `InvalidKey`.
    """
    return spki(require_supported_key(public_key))


def spki(public_key: PublicKey) -> bytes:
    """Return the DER SubjectPublicKeyInfo of a key that is known to be supported."""
    return public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def public_key_pem(public_key: PublicKey) -> str:
    """Return the key as PEM, as `EndorsementKey` objects hold it."""
    return public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def spki_sha256(public_key: PublicKeyTypes) -> bytes:
    """Return the SHA-256 of the canonical SubjectPublicKeyInfo, 32 bytes. Raises `InvalidKey`."""
    return hashlib.sha256(canonical_spki(public_key)).digest()


def public_key_from_area(public: PublicArea) -> PublicKey:
    """Return the key of a TPM's public area, with any attributes.

    An RSA key has 2048, 3072 or 4096 bits, an odd modulus with the highest bit set, and exponent 0
    or 65537. An ECC key is a point on P-256 or P-384. Raises `InvalidKey`.
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
        raise InvalidKey("RSA exponent must be 65537")
    n = int.from_bytes(modulus, "big")
    if parameters.key_bits not in _RSA_SIZES or len(modulus) * 8 != parameters.key_bits:
        raise InvalidKey("RSA modulus must have 2048, 3072 or 4096 bits")
    if n.bit_length() != parameters.key_bits or n % 2 == 0:
        raise InvalidKey("RSA modulus must be odd, with its highest bit set")
    return rsa.RSAPublicNumbers(RSA_EXPONENT, n).public_key()


def _ecc_key(parameters: EccParameters, point: EccPoint) -> ec.EllipticCurvePublicKey:
    curve = CURVES.get(parameters.curve)
    if curve is None:
        raise InvalidKey("curve must be P-256 or P-384")
    size = (curve.key_size + 7) // 8
    if len(point.x) > size or len(point.y) > size:
        raise InvalidKey("coordinate is longer than the field")
    uncompressed = b"\4" + point.x.rjust(size, b"\0") + point.y.rjust(size, b"\0")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, uncompressed)
    except ValueError:
        raise InvalidKey("point is not on the curve") from None
