"""TPMT_PUBLIC, the public area of a key, and its Name.

RSA and ECC keys are supported, with SHA-1, SHA-256, SHA-384 or SHA-512 as nameAlg. Encoding a
parsed area returns the same bytes, so its Name is the Name of those bytes. common/public_keys.py
checks the key, and the signer decides whether it is allowed.

Source: TPM 2.0 Part 2, sections 11.2.3 to 12.2.4; Name: Part 1, section 16.
"""

import hashlib
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, Self

from common.tpm.constants import (
    DIGEST_SIZES,
    HASHES,
    MAX_ECC_KEY_BYTES,
    MAX_RSA_KEY_BYTES,
    TPM_ALG_AES,
    TPM_ALG_ECC,
    TPM_ALG_ECDH,
    TPM_ALG_ECDSA,
    TPM_ALG_KDF1_SP800_56A,
    TPM_ALG_KDF1_SP800_108,
    TPM_ALG_KDF2,
    TPM_ALG_MGF1,
    TPM_ALG_NULL,
    TPM_ALG_OAEP,
    TPM_ALG_RSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    ObjectAttributes,
)
from common.tpm.reader import Reader, tpm2b

_HEAD: Final = Struct(">HHI")
"""Type, nameAlg and objectAttributes."""
_WORD: Final = Struct(">H")
_WORDS: Final = Struct(">HH")
_SIZE_AND_EXPONENT: Final = Struct(">HI")

_KNOWN_ATTRIBUTES: Final = sum(ObjectAttributes)
_RSA_SCHEMES: Final = frozenset({TPM_ALG_RSASSA, TPM_ALG_RSAPSS, TPM_ALG_OAEP})
_ECC_SCHEMES: Final = frozenset({TPM_ALG_ECDSA, TPM_ALG_ECDH})
_KDF_SCHEMES: Final = frozenset(
    {TPM_ALG_MGF1, TPM_ALG_KDF1_SP800_56A, TPM_ALG_KDF2, TPM_ALG_KDF1_SP800_108}
)


class Symmetric(NamedTuple):
    """TPMT_SYM_DEF_OBJECT other than null: the AES cipher of a storage key."""

    algorithm: int
    key_bits: int
    mode: int


class Scheme(NamedTuple):
    """An asymmetric or key derivation scheme other than null, with its hash algorithm."""

    algorithm: int
    hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RsaParameters:
    """TPMS_RSA_PARMS; None means TPM_ALG_NULL, exponent 0 means 65537."""

    symmetric: Symmetric | None
    scheme: Scheme | None
    key_bits: int
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EccParameters:
    """TPMS_ECC_PARMS; None means TPM_ALG_NULL."""

    symmetric: Symmetric | None
    scheme: Scheme | None
    curve: int
    kdf: Scheme | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EccPoint:
    """TPMS_ECC_POINT: big-endian coordinates as sent, with or without padding."""

    x: bytes
    y: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicArea:
    """TPMT_PUBLIC. `unique` is an RSA modulus with RsaParameters, a point with EccParameters."""

    name_alg: int
    attributes: ObjectAttributes
    auth_policy: bytes
    parameters: RsaParameters | EccParameters
    unique: bytes | EccPoint

    @property
    def type(self) -> int:
        """TPM_ALG_RSA or TPM_ALG_ECC."""
        return TPM_ALG_RSA if isinstance(self.parameters, RsaParameters) else TPM_ALG_ECC

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse exactly one TPMT_PUBLIC.

        Raises `StructureMalformed`.
        """
        reader = Reader(data)
        public = cls._read(reader)
        reader.finish()
        return public

    @classmethod
    def from_tpm2b(cls, data: bytes) -> Self:
        """Parse exactly one TPM2B_PUBLIC.

        Raises `StructureMalformed`.
        """
        reader = Reader(data)
        area = reader.tpm2b(len(data))
        reader.finish()
        return cls.parse(area)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        object_type, name_alg, attributes = reader.unpack(_HEAD)
        if object_type not in {TPM_ALG_RSA, TPM_ALG_ECC}:
            raise reader.fail("key type must be RSA or ECC")
        _require_hash(name_alg, reader)
        if attributes & ~_KNOWN_ATTRIBUTES:
            raise reader.fail("a reserved attribute is set")
        auth_policy = reader.tpm2b(DIGEST_SIZES[name_alg])
        if auth_policy and len(auth_policy) != DIGEST_SIZES[name_alg]:
            raise reader.fail("authPolicy must be empty or a digest of nameAlg")
        parameters: RsaParameters | EccParameters
        unique: bytes | EccPoint
        if object_type == TPM_ALG_RSA:
            parameters = _read_rsa_parameters(reader)
            unique = reader.tpm2b(MAX_RSA_KEY_BYTES)
        else:
            parameters = _read_ecc_parameters(reader)
            unique = EccPoint(x=reader.tpm2b(MAX_ECC_KEY_BYTES), y=reader.tpm2b(MAX_ECC_KEY_BYTES))
        return cls(
            name_alg=name_alg,
            attributes=ObjectAttributes(attributes),
            auth_policy=auth_policy,
            parameters=parameters,
            unique=unique,
        )

    def encode(self) -> bytes:
        """Return the TPMT_PUBLIC."""
        return (
            _HEAD.pack(self.type, self.name_alg, self.attributes)
            + tpm2b(self.auth_policy)
            + _encode_parameters(self.parameters)
            + _encode_unique(self.unique)
        )

    def to_tpm2b(self) -> bytes:
        """Return the TPM2B_PUBLIC."""
        return tpm2b(self.encode())

    def name(self) -> bytes:
        """Return the Name."""
        return object_name(self.name_alg, self.encode())


def object_name(name_alg: int, area: bytes) -> bytes:
    """Return the Name of an encoded TPMT_PUBLIC: nameAlg, and the digest of its bytes."""
    return _WORD.pack(name_alg) + hashlib.new(HASHES[name_alg], area).digest()


def _require_hash(algorithm: int, reader: Reader) -> None:
    if algorithm not in HASHES:
        raise reader.fail("hash algorithm is unknown")


def _read_symmetric(reader: Reader) -> Symmetric | None:
    algorithm = reader.uint16()
    if algorithm == TPM_ALG_NULL:
        return None
    if algorithm != TPM_ALG_AES:
        raise reader.fail("symmetric algorithm must be null or AES")
    key_bits, mode = reader.unpack(_WORDS)
    return Symmetric(algorithm, key_bits, mode)


def _read_scheme(reader: Reader, supported: frozenset[int]) -> Scheme | None:
    algorithm = reader.uint16()
    if algorithm == TPM_ALG_NULL:
        return None
    if algorithm not in supported:
        raise reader.fail("scheme is unknown")
    digest = reader.uint16()
    _require_hash(digest, reader)
    return Scheme(algorithm, digest)


def _read_rsa_parameters(reader: Reader) -> RsaParameters:
    symmetric = _read_symmetric(reader)
    scheme = _read_scheme(reader, _RSA_SCHEMES)
    key_bits, exponent = reader.unpack(_SIZE_AND_EXPONENT)
    return RsaParameters(symmetric=symmetric, scheme=scheme, key_bits=key_bits, exponent=exponent)


def _read_ecc_parameters(reader: Reader) -> EccParameters:
    return EccParameters(
        symmetric=_read_symmetric(reader),
        scheme=_read_scheme(reader, _ECC_SCHEMES),
        curve=reader.uint16(),
        kdf=_read_scheme(reader, _KDF_SCHEMES),
    )


def _encode_symmetric(value: Symmetric | None) -> bytes:
    if value is None:
        return _WORD.pack(TPM_ALG_NULL)
    return _WORD.pack(value.algorithm) + _WORDS.pack(value.key_bits, value.mode)


def _encode_scheme(value: Scheme | None) -> bytes:
    if value is None:
        return _WORD.pack(TPM_ALG_NULL)
    return _WORDS.pack(value.algorithm, value.hash)


def _encode_parameters(value: RsaParameters | EccParameters) -> bytes:
    algorithms = _encode_symmetric(value.symmetric) + _encode_scheme(value.scheme)
    if isinstance(value, RsaParameters):
        return algorithms + _SIZE_AND_EXPONENT.pack(value.key_bits, value.exponent)
    return algorithms + _WORD.pack(value.curve) + _encode_scheme(value.kdf)


def _encode_unique(value: bytes | EccPoint) -> bytes:
    if isinstance(value, EccPoint):
        return tpm2b(value.x) + tpm2b(value.y)
    return tpm2b(value)
