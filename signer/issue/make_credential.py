"""MakeCredential: wrap a secret so that one TPM alone can open it, for one key alone.

The TPM that holds the endorsement key opens it only while it also holds an object of exactly
this Name. The endorsement key has been checked against the TCG templates before; what this module
reads of it (nameAlg, symmetric, key) decides sizes and algorithms.

Source: TPM 2.0 Part 1, section 24 (credential protection), annexes B.10 and C.6; KDFa: section
11.4.10.2 (SP 800-108, counter mode), KDFe: 11.4.10.3 (SP 800-56A, one step).
"""

import hmac
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from common.public_keys import InvalidKey, public_key_from_area
from common.tpm.constants import (
    DIGEST_SIZES,
    HASHES,
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ALG_SHA512,
)
from common.tpm.public import PublicArea
from common.tpm.reader import pack_uints, tpm2b

_HASHES: Final[dict[int, hashes.HashAlgorithm]] = {
    TPM_ALG_SHA256: hashes.SHA256(),
    TPM_ALG_SHA384: hashes.SHA384(),
    TPM_ALG_SHA512: hashes.SHA512(),
}
_AES_BITS: Final = frozenset({128, 256})
_IDENTITY: Final = b"IDENTITY\0"
"""Labels of the specification end in a NUL, which is part of them."""


def make_credential(
    ek: PublicArea, ak_name: bytes, secret: bytes, *, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Wrap `secret` for the TPM of `ek`; return (TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET).

    `random` returns as many unpredictable bytes as it is asked for; the OAEP padding and nothing
    else has randomness of its own. Raises KeyInvalid for an endorsement key that can wrap nothing.
    """
    if ek.name_alg not in _HASHES or len(secret) > DIGEST_SIZES[ek.name_alg]:
        raise InvalidKey("endorsement key's nameAlg is not taken, or too small for the secret")
    symmetric = ek.parameters.symmetric
    if symmetric is None or (symmetric.algorithm, symmetric.mode) != (TPM_ALG_AES, TPM_ALG_CFB):
        raise InvalidKey("endorsement key does not wrap with AES in CFB mode")
    if symmetric.key_bits not in _AES_BITS:
        raise InvalidKey("endorsement key's AES key is neither of 128 nor of 256 bits")
    key = public_key_from_area(ek)
    if isinstance(key, rsa.RSAPublicKey):
        seed, encrypted_secret = _seed_for_rsa(key, ek.name_alg, random)
    else:
        seed, encrypted_secret = _seed_for_ecc(key, ek.name_alg, random)
    blob = _wrap(seed, ek.name_alg, symmetric.key_bits, ak_name, secret)
    return tpm2b(blob), tpm2b(encrypted_secret)


def _wrap(seed: bytes, name_alg: int, key_bits: int, ak_name: bytes, secret: bytes) -> bytes:
    """Encrypt and authenticate the secret under keys from `seed`: TPMS_ID_OBJECT."""
    storage_key = kdf_a(name_alg, seed, b"STORAGE\0", ak_name, b"", key_bits)
    # An all-zero IV is the specification's; seed and so key are never used twice.
    cipher = Cipher(AES(storage_key), CFB(bytes(16))).encryptor()
    encrypted = cipher.update(tpm2b(secret)) + cipher.finalize()
    bits = DIGEST_SIZES[name_alg] * 8
    integrity_key = kdf_a(name_alg, seed, b"INTEGRITY\0", b"", b"", bits)
    integrity = hmac.digest(integrity_key, encrypted + ak_name, HASHES[name_alg])
    return tpm2b(integrity) + encrypted


def _seed_for_rsa(
    key: rsa.RSAPublicKey, name_alg: int, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Choose a seed and encrypt it with OAEP (Part 1, annex B.10.3)."""
    seed = random(DIGEST_SIZES[name_alg])
    algorithm = _HASHES[name_alg]
    oaep = padding.OAEP(mgf=padding.MGF1(algorithm), algorithm=algorithm, label=_IDENTITY)
    return seed, key.encrypt(seed, oaep)


def _seed_for_ecc(
    key: ec.EllipticCurvePublicKey, name_alg: int, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Agree on a seed with an ephemeral key; what is sent is its point (annex C.6.3)."""
    ephemeral = _ephemeral_key(key.curve, random)
    size = (key.curve.key_size + 7) // 8
    sent, own = ephemeral.public_key().public_numbers(), key.public_numbers()
    seed = kdf_e(
        name_alg,
        ephemeral.exchange(ec.ECDH(), key),
        _IDENTITY,
        pack_uints((sent.x, size)),
        pack_uints((own.x, size)),
        DIGEST_SIZES[name_alg] * 8,
    )
    return seed, tpm2b(pack_uints((sent.x, size))) + tpm2b(pack_uints((sent.y, size)))


def _ephemeral_key(
    curve: ec.EllipticCurve, random: Callable[[int], bytes]
) -> ec.EllipticCurvePrivateKey:
    """Derive a key from 64 spare bits, so that no scalar is likelier (FIPS 186-5, A.2.1)."""
    scalar = int.from_bytes(random((curve.key_size + 7) // 8 + 8), "big")
    return ec.derive_private_key(scalar % (curve.group_order - 1) + 1, curve)


def kdf_a(  # noqa: PLR0913, PLR0917 - the specification's parameters, in its order
    algorithm: int, key: bytes, label: bytes, context_u: bytes, context_v: bytes, bits: int
) -> bytes:
    """Derive `bits` (whole bytes) with KDFa; `label` ends in its NUL."""
    fixed = label + context_u + context_v + pack_uints((bits, 4))
    blocks = range(1, -(-bits // (DIGEST_SIZES[algorithm] * 8)) + 1)
    stream = b"".join(
        hmac.digest(key, pack_uints((counter, 4)) + fixed, HASHES[algorithm]) for counter in blocks
    )
    return stream[: bits // 8]


def kdf_e(  # noqa: PLR0913, PLR0917 - as above
    algorithm: int, z: bytes, label: bytes, party_u: bytes, party_v: bytes, bits: int
) -> bytes:
    """Derive `bits`, one digest at most, with KDFe from a shared X coordinate of full length."""
    digest = hashes.Hash(_HASHES[algorithm])
    digest.update(pack_uints((1, 4)) + z + label + party_u + party_v)
    return digest.finalize()[: bits // 8]
