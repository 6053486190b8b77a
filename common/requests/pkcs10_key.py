"""The key of a PKCS#10 request, and its signature under that key (P3).

`cryptography` verifies the signature. This module decodes the key itself, because the profile
allows one encoding of it. Source: RFC 5280 section 4.1, RFC 5480, RFC 8017 appendix A.1.1.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.errors import RequestKeyNotAllowed, RequestMalformed, RequestSignatureInvalid
from common.public_keys import RSA_EXPONENT, PublicKey
from common.requests.pkcs10_asn1 import (
    InvalidDer,
    RsaPublicKey,
    SubjectPublicKeyInfo,
    content_of,
    decode,
    octets_of,
)

# Contents of AlgorithmIdentifiers with parameters. In DER each has one encoding.
_RSA_ENCRYPTION: Final = bytes.fromhex("06092a864886f70d0101010500")
_CURVES: Final[Mapping[bytes, ec.EllipticCurve]] = MappingProxyType(
    {
        bytes.fromhex("06072a8648ce3d020106082a8648ce3d030107"): ec.SECP256R1(),
        bytes.fromhex("06072a8648ce3d020106052b81040022"): ec.SECP384R1(),
    }
)
_RSA_SIGNATURES: Final = {
    bytes.fromhex("06092a864886f70d01010b0500"): hashes.SHA256(),
    bytes.fromhex("06092a864886f70d01010c0500"): hashes.SHA384(),
    bytes.fromhex("06092a864886f70d01010d0500"): hashes.SHA512(),
}
_ECDSA_SIGNATURES: Final = {
    bytes.fromhex("06082a8648ce3d040302"): ec.ECDSA(hashes.SHA256()),
    bytes.fromhex("06082a8648ce3d040303"): ec.ECDSA(hashes.SHA384()),
    bytes.fromhex("06082a8648ce3d040304"): ec.ECDSA(hashes.SHA512()),
}
_COMPRESSED_OR_HYBRID: Final = (b"\2", b"\3", b"\6", b"\7")
"""First bytes of compressed and hybrid points (SEC 1, section 2.3.3; X9.62, section 4.3.6)."""
_RSA_BITS: Final = range(2048, 4096 + 1)


def read_public_key(info: SubjectPublicKeyInfo) -> PublicKey:
    """Return the key, from its canonical encoding (P3).

    Raises `InvalidDer`, `RequestMalformed`, `RequestKeyNotAllowed`.
    """
    algorithm, key = content_of(info.algorithm), octets_of(info.key)
    if algorithm == _RSA_ENCRYPTION:
        return _rsa_key(key)
    curve = _CURVES.get(algorithm)
    if curve is None:
        raise RequestKeyNotAllowed("key must be RSA, or on P-256 or P-384")
    if key.startswith(_COMPRESSED_OR_HYBRID):
        raise RequestMalformed("SubjectPublicKeyInfo is not in canonical form")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, key)
    except ValueError:
        raise RequestKeyNotAllowed("key is invalid: its point is not on the curve") from None


def _rsa_key(data: bytes) -> rsa.RSAPublicKey:
    """Decode an RSAPublicKey of RFC 8017, appendix A.1.1 (P3)."""
    try:
        key = decode(RsaPublicKey, data)
    except InvalidDer as error:
        raise RequestKeyNotAllowed(
            "key is invalid: it is not an RSAPublicKey", detail=str(error)
        ) from None
    if key.exponent != RSA_EXPONENT:
        raise RequestKeyNotAllowed("RSA key must have exponent 65537")
    # OpenSSL loads keys with an even modulus.
    if key.modulus < 0 or key.modulus % 2 == 0 or key.modulus.bit_length() not in _RSA_BITS:
        raise RequestKeyNotAllowed("RSA key must have an odd modulus of 2048 to 4096 bits")
    return rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()


def verify_signature(key: PublicKey, algorithm: bytes, signature: bytes, signed: bytes) -> None:
    """Verify that the request is signed by its own key (P3). Raises `RequestSignatureInvalid`."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), _RSA_SIGNATURES[algorithm])
        else:
            key.verify(signature, signed, _ECDSA_SIGNATURES[algorithm])
    except KeyError:
        raise RequestSignatureInvalid("signature algorithm does not fit the key") from None
    except InvalidSignature:
        raise RequestSignatureInvalid("request is not signed by its own key") from None
