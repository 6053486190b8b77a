"""The TPM structures of the protocol, in one place to import them from."""

from common.tpm.attest import Attest, AttestNotGenerated, AttestNotQuote, ClockInfo
from common.tpm.pcrs import PcrSelection, encode_selection, parse_selection
from common.tpm.public import (
    EccParameters,
    EccPoint,
    PublicArea,
    RsaParameters,
    Scheme,
    Symmetric,
    object_name,
)
from common.tpm.reader import StructureMalformed
from common.tpm.signature import EcdsaValue, Signature

__all__ = [
    "Attest",
    "AttestNotGenerated",
    "AttestNotQuote",
    "ClockInfo",
    "EccParameters",
    "EccPoint",
    "EcdsaValue",
    "PcrSelection",
    "PublicArea",
    "RsaParameters",
    "Scheme",
    "Signature",
    "StructureMalformed",
    "Symmetric",
    "encode_selection",
    "object_name",
    "parse_selection",
]
