"""MakeCredential: encrypts a secret for one endorsement key and one object Name.

Only the TPM with that endorsement key can decrypt it, and only while it has an object with that
Name loaded. E1 has compared the endorsement key with the TCG templates; its nameAlg, symmetric
definition and type decide sizes and algorithms here.

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
"""The labels of the specification include their final NUL."""


def make_credential(
    ek: PublicArea, ak_name: bytes, secret: bytes, *, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Encrypt `secret` for the TPM of `ek`; return (TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET).

    `random` returns that many unpredictable bytes. Only the OAEP padding uses another source, the
    one of OpenSSL. Raises `InvalidKey`: the endorsement key's algorithms cannot encrypt this
    secret.
    """
    if ek.name_alg not in _HASHES or len(secret) > DIGEST_SIZES[ek.name_alg]:
        raise InvalidKey("endorsement key's nameAlg is unsupported, or too small for the secret")
    symmetric = ek.parameters.symmetric
    if symmetric is None or (symmetric.algorithm, symmetric.mode) != (TPM_ALG_AES, TPM_ALG_CFB):
        raise InvalidKey("endorsement key's symmetric algorithm must be AES in CFB mode")
    if symmetric.key_bits not in _AES_BITS:
        raise InvalidKey("endorsement key's AES key must have 128 or 256 bits")
    key = public_key_from_area(ek)
    if isinstance(key, rsa.RSAPublicKey):
        seed, encrypted_secret = _seed_for_rsa(key, ek.name_alg, random)
    else:
        seed, encrypted_secret = _seed_for_ecc(key, ek.name_alg, random)
    blob = _wrap(seed, ek.name_alg, symmetric.key_bits, ak_name, secret)
    return tpm2b(blob), tpm2b(encrypted_secret)


def _wrap(seed: bytes, name_alg: int, key_bits: int, ak_name: bytes, secret: bytes) -> bytes:
    """Return a TPMS_ID_OBJECT: the secret, encrypted and authenticated under keys from `seed`."""
    storage_key = kdf_a(name_alg, seed, b"STORAGE\0", ak_name, b"", key_bits)
    # The specification fixes an all-zero IV. The seed, and so the key, is used once.
    cipher = Cipher(AES(storage_key), CFB(bytes(16))).encryptor()
    encrypted = cipher.update(tpm2b(secret)) + cipher.finalize()
    bits = DIGEST_SIZES[name_alg] * 8
    integrity_key = kdf_a(name_alg, seed, b"INTEGRITY\0", b"", b"", bits)
    integrity = hmac.digest(integrity_key, encrypted + ak_name, HASHES[name_alg])
    return tpm2b(integrity) + encrypted


def _seed_for_rsa(
    key: rsa.RSAPublicKey, name_alg: int, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Return a random seed and its OAEP encryption (Part 1, annex B.10.3)."""
    seed = random(DIGEST_SIZES[name_alg])
    algorithm = _HASHES[name_alg]
    oaep = padding.OAEP(mgf=padding.MGF1(algorithm), algorithm=algorithm, label=_IDENTITY)
    return seed, key.encrypt(seed, oaep)


def _seed_for_ecc(
    key: ec.EllipticCurvePublicKey, name_alg: int, random: Callable[[int], bytes]
) -> tuple[bytes, bytes]:
    """Return a seed agreed with an ephemeral key, and that key's point (annex C.6.3)."""
    ephemeral = _ephemeral_key(key.curve, random)
    size = (key.curve.key_size + 7) // 8
    sender, recipient = ephemeral.public_key().public_numbers(), key.public_numbers()
    seed = kdf_e(
        name_alg,
        ephemeral.exchange(ec.ECDH(), key),
        _IDENTITY,
        pack_uints((sender.x, size)),
        pack_uints((recipient.x, size)),
        DIGEST_SIZES[name_alg] * 8,
    )
    return seed, tpm2b(pack_uints((sender.x, size))) + tpm2b(pack_uints((sender.y, size)))


def _ephemeral_key(
    curve: ec.EllipticCurve, random: Callable[[int], bytes]
) -> ec.EllipticCurvePrivateKey:
    """Return a random key; 64 extra bits keep the scalar unbiased (FIPS 186-5, A.2.1)."""
    scalar = int.from_bytes(random((curve.key_size + 7) // 8 + 8), "big")
    return ec.derive_private_key(scalar % (curve.group_order - 1) + 1, curve)


def kdf_a(  # noqa: PLR0913, PLR0917 - the specification's parameters, in its order
    algorithm: int, key: bytes, label: bytes, context_u: bytes, context_v: bytes, bits: int
) -> bytes:
    """Derive `bits`, a multiple of 8, with KDFa; `label` includes its NUL."""
    fixed = label + context_u + context_v + pack_uints((bits, 4))
    blocks = range(1, -(-bits // (DIGEST_SIZES[algorithm] * 8)) + 1)
    stream = b"".join(
        hmac.digest(key, pack_uints((counter, 4)) + fixed, HASHES[algorithm]) for counter in blocks
    )
    return stream[: bits // 8]


def kdf_e(  # noqa: PLR0913, PLR0917 - as above
    algorithm: int, z: bytes, label: bytes, party_u: bytes, party_v: bytes, bits: int
) -> bytes:
    """Derive `bits`, at most one digest, with KDFe; `z` is the X coordinate in full length."""
    digest = hashes.Hash(_HASHES[algorithm])
    digest.update(pack_uints((1, 4)) + z + label + party_u + party_v)
    return digest.finalize()[: bits // 8]
