"""The TCG's templates for endorsement keys, which the node creates and the signer accepts.

Source: TCG EK Credential Profile 2.x, annex B.3 (L-1, L-2) and B.4 (H-1 to H-6).
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from common.tpm.constants import (
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ECC_NIST_P256,
    TPM_ECC_NIST_P384,
    ObjectAttributes,
)
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters, Symmetric

POLICY_A: Final[Mapping[int, bytes]] = MappingProxyType(
    {
        TPM_ALG_SHA256: bytes.fromhex(
            "837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
        ),
        TPM_ALG_SHA384: bytes.fromhex(
            "8bbf2266537c171cb56e403c4dc1d4b64f432611dc386e6f532050c3278c930e"
            "143e8bb1133824ccb431053871c6db53"
        ),
    }
)
"""PolicySecret with the endorsement hierarchy, by hash; the policy of the low range."""

POLICY_B: Final[Mapping[int, bytes]] = MappingProxyType(
    {
        TPM_ALG_SHA256: bytes.fromhex(
            "ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0"
        ),
        TPM_ALG_SHA384: bytes.fromhex(
            "b26e7d28d11a50bc53d882bcf5fd3a1a074148bb35d3b4e4cb1c0ad9bde419ca"
            "cb47ba09699646150f9fc000f3f80e12"
        ),
    }
)
"""PolicyOR of policy A and policy C (PolicyAuthorizeNV), by hash; the policy of the high range."""

_LOW_ATTRIBUTES: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.ADMINWITHPOLICY
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.DECRYPT
)
_HIGH_ATTRIBUTES: Final = _LOW_ATTRIBUTES | ObjectAttributes.USERWITHAUTH

_DEFAULT_EXPONENT: Final = 65537
"""The RSA exponent that a TPM writes as 0 or as itself."""


def _rsa(bits: int, aes_bits: int) -> RsaParameters:
    return RsaParameters(symmetric=_aes(aes_bits), scheme=None, key_bits=bits, exponent=0)


def _ecc(curve: int, aes_bits: int) -> EccParameters:
    return EccParameters(symmetric=_aes(aes_bits), scheme=None, curve=curve, kdf=None)


def _aes(bits: int) -> Symmetric:
    return Symmetric(algorithm=TPM_ALG_AES, key_bits=bits, mode=TPM_ALG_CFB)


def _low(parameters: RsaParameters | EccParameters, unique: bytes | EccPoint) -> PublicArea:
    return PublicArea(
        name_alg=TPM_ALG_SHA256,
        attributes=_LOW_ATTRIBUTES,
        auth_policy=POLICY_A[TPM_ALG_SHA256],
        parameters=parameters,
        unique=unique,
    )


def _high(name_alg: int, parameters: RsaParameters | EccParameters) -> PublicArea:
    return PublicArea(
        name_alg=name_alg,
        attributes=_HIGH_ATTRIBUTES,
        auth_policy=POLICY_B[name_alg],
        parameters=parameters,
        unique=b"" if isinstance(parameters, RsaParameters) else EccPoint(x=b"", y=b""),
    )


TEMPLATES: Final[Mapping[str, PublicArea]] = MappingProxyType(
    {
        "L-1": _low(_rsa(2048, 128), bytes(256)),
        "L-2": _low(_ecc(TPM_ECC_NIST_P256, 128), EccPoint(x=bytes(32), y=bytes(32))),
        "H-1": _high(TPM_ALG_SHA256, _rsa(2048, 128)),
        "H-2": _high(TPM_ALG_SHA256, _ecc(TPM_ECC_NIST_P256, 128)),
        "H-3": _high(TPM_ALG_SHA384, _ecc(TPM_ECC_NIST_P384, 256)),
        "H-6": _high(TPM_ALG_SHA384, _rsa(3072, 256)),
    }
)
"""Public areas as TPM2_CreatePrimary takes them, by the profile's name."""


def find_template(public: PublicArea) -> str | None:
    """Return the name of the template that created a key with this public area, if there is one.

    Everything but the key itself is compared. Exponents 0 and 65537 are equal.
    """
    parameters = public.parameters
    if isinstance(parameters, RsaParameters) and parameters.exponent == _DEFAULT_EXPONENT:
        parameters = replace(parameters, exponent=0)
    for name, template in TEMPLATES.items():
        if replace(public, parameters=parameters, unique=template.unique) == template:
            return name
    return None
