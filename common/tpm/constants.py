"""Constants of the TPM 2.0 library specification, with the TCG's names.

Source: TPM 2.0 Part 2, sections 6 (constants), 8 (attributes) and the TCG Algorithm Registry.
"""

from collections.abc import Mapping
from enum import IntFlag
from types import MappingProxyType
from typing import Final

TPM_GENERATED_VALUE: Final = 0xFF544347
"""Magic of all attestation structures. TPMs sign no external data that begins with it."""

TPM_ST_ATTEST_QUOTE: Final = 0x8018
TPM_ST_ATTEST_CREATION: Final = 0x801A

TPM_ALG_RSA: Final = 0x0001
TPM_ALG_SHA1: Final = 0x0004
TPM_ALG_AES: Final = 0x0006
TPM_ALG_MGF1: Final = 0x0007
TPM_ALG_SHA256: Final = 0x000B
TPM_ALG_SHA384: Final = 0x000C
TPM_ALG_SHA512: Final = 0x000D
TPM_ALG_NULL: Final = 0x0010
TPM_ALG_RSASSA: Final = 0x0014
TPM_ALG_RSAPSS: Final = 0x0016
TPM_ALG_OAEP: Final = 0x0017
TPM_ALG_ECDSA: Final = 0x0018
TPM_ALG_ECDH: Final = 0x0019
TPM_ALG_KDF1_SP800_56A: Final = 0x0020
TPM_ALG_KDF2: Final = 0x0021
TPM_ALG_KDF1_SP800_108: Final = 0x0022
TPM_ALG_ECC: Final = 0x0023
TPM_ALG_CFB: Final = 0x0043

TPM_ECC_NIST_P256: Final = 0x0003
TPM_ECC_NIST_P384: Final = 0x0004

BANKS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "sha1": TPM_ALG_SHA1,
        "sha256": TPM_ALG_SHA256,
        "sha384": TPM_ALG_SHA384,
        "sha512": TPM_ALG_SHA512,
    }
)
"""PCR banks as the protocol and `hashlib` name them, ascending by algorithm."""

HASHES: Final[Mapping[int, str]] = MappingProxyType({alg: name for name, alg in BANKS.items()})
"""The `hashlib` name of each supported hash algorithm."""

DIGEST_SIZES: Final[Mapping[int, int]] = MappingProxyType(
    {TPM_ALG_SHA1: 20, TPM_ALG_SHA256: 32, TPM_ALG_SHA384: 48, TPM_ALG_SHA512: 64}
)
"""Bytes of a digest, by hash algorithm."""

MAX_RSA_KEY_BYTES: Final = 512
MAX_ECC_KEY_BYTES: Final = 66
"""Sizes of RSA 4096 and P-521. P-521 can be parsed, but no policy accepts it."""

PCR_COUNT: Final = 24
"""PCRs of a bank: three bytes of selection (PC Client Platform TPM Profile)."""


class ObjectAttributes(IntFlag):
    """TPMA_OBJECT (Part 2, section 8.3)."""

    FIXEDTPM = 1 << 1
    STCLEAR = 1 << 2
    FIXEDPARENT = 1 << 4
    SENSITIVEDATAORIGIN = 1 << 5
    USERWITHAUTH = 1 << 6
    ADMINWITHPOLICY = 1 << 7
    FIRMWARELIMITED = 1 << 8
    SVNLIMITED = 1 << 9
    NODA = 1 << 10
    ENCRYPTEDDUPLICATION = 1 << 11
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN_ENCRYPT = 1 << 18
    X509SIGN = 1 << 19
