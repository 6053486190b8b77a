"""TPMT_SIGNATURE of the schemes RSASSA, RSAPSS and ECDSA.

Source: TPM 2.0 Part 2, section 11.3.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from common.tpm.constants import (
    HASHES,
    MAX_ECC_KEY_BYTES,
    MAX_RSA_KEY_BYTES,
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
)
from common.tpm.reader import Reader, tpm2b

_HEAD: Final = Struct(">HH")
"""Scheme and hash algorithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EcdsaValue:
    """TPMS_SIGNATURE_ECC: big-endian integers as sent, with or without padding."""

    r: bytes
    s: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """TPMT_SIGNATURE; `value` is an EcdsaValue if the scheme is ECDSA, else the RSA signature."""

    scheme: int
    hash: int
    value: bytes | EcdsaValue

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse exactly one TPMT_SIGNATURE.

        Raises `StructureMalformed`.
        """
        reader = Reader(data)
        scheme, algorithm = reader.unpack(_HEAD)
        if scheme not in {TPM_ALG_RSASSA, TPM_ALG_RSAPSS, TPM_ALG_ECDSA}:
            raise reader.fail("signature scheme is unknown")
        if algorithm not in HASHES:
            raise reader.fail("hash algorithm is unknown")
        value: bytes | EcdsaValue
        if scheme == TPM_ALG_ECDSA:
            value = EcdsaValue(r=reader.tpm2b(MAX_ECC_KEY_BYTES), s=reader.tpm2b(MAX_ECC_KEY_BYTES))
        else:
            value = reader.tpm2b(MAX_RSA_KEY_BYTES)
        reader.finish()
        return cls(scheme=scheme, hash=algorithm, value=value)

    def encode(self) -> bytes:
        """Return the TPMT_SIGNATURE."""
        head = _HEAD.pack(self.scheme, self.hash)
        if isinstance(self.value, EcdsaValue):
            return head + tpm2b(self.value.r) + tpm2b(self.value.s)
        return head + tpm2b(self.value)

    def x509(self) -> bytes:
        """Return the signature in the form of X.509: RSA's bytes, or DER for ECDSA."""
        if isinstance(self.value, EcdsaValue):
            r, s = (int.from_bytes(v, "big") for v in (self.value.r, self.value.s))
            return encode_dss_signature(r, s)
        return self.value
