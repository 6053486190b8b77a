"""The endorsement key's form: of a TCG template, and strong (E1).

A key of a template only decrypts, under a policy of the TCG's, so what it opens was opened inside
a TPM's endorsement hierarchy. Whose it is, is for signer/verify/endorsement_trust.py. Source: TCG EK Credential
Profile 2.x, annex B; docs/protocol.md sections 4 and 5.
"""

from dataclasses import dataclass, replace
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.binding import sha256
from common.public_keys import RSA_EXPONENT, InvalidKey, PublicKey, public_key_from_area, spki
from common.tpm.constants import (
    TPM_ALG_AES,
    TPM_ALG_CFB,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ECC_NIST_P256,
    TPM_ECC_NIST_P384,
    ObjectAttributes,
)
from common.tpm.structures import (
    EccParameters,
    PublicArea,
    RsaParameters,
    StructureMalformed,
    Symmetric,
)
from signer.errors import EndorsementKeyMalformed, EndorsementKeyNotTemplate, EndorsementKeyWeak
from signer.verify.weak_keys import WeakKey, reject_weak_key

_LOW_ATTRIBUTES: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.ADMINWITHPOLICY
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.DECRYPT
)
_HIGH_ATTRIBUTES: Final = _LOW_ATTRIBUTES | ObjectAttributes.USERWITHAUTH

_POLICY_A: Final = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""PolicySecret(endorsement hierarchy), SHA-256: the low range."""
_POLICY_B_SHA256: Final = bytes.fromhex(
    "ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0"
)
_POLICY_B_SHA384: Final = bytes.fromhex(
    "b26e7d28d11a50bc53d882bcf5fd3a1a074148bb35d3b4e4cb1c0ad9bde419ca"
    "cb47ba09699646150f9fc000f3f80e12"
)
"""PolicyOR of that and of a policy that the platform's owner writes to NV: the high range."""


def _aes(bits: int) -> Symmetric:
    return Symmetric(algorithm=TPM_ALG_AES, key_bits=bits, mode=TPM_ALG_CFB)


def _rsa(bits: int, aes_bits: int) -> RsaParameters:
    return RsaParameters(symmetric=_aes(aes_bits), scheme=None, key_bits=bits, exponent=0)


def _ecc(curve: int, aes_bits: int) -> EccParameters:
    return EccParameters(symmetric=_aes(aes_bits), scheme=None, curve=curve, kdf=None)


def _template(
    parameters: RsaParameters | EccParameters,
    name_alg: int,
    attributes: ObjectAttributes,
    auth_policy: bytes,
) -> PublicArea:
    return PublicArea(
        name_alg=name_alg,
        attributes=attributes,
        auth_policy=auth_policy,
        parameters=parameters,
        unique=b"",
    )


TEMPLATES: Final = (
    # L-1, L-2
    _template(_rsa(2048, 128), TPM_ALG_SHA256, _LOW_ATTRIBUTES, _POLICY_A),
    _template(_ecc(TPM_ECC_NIST_P256, 128), TPM_ALG_SHA256, _LOW_ATTRIBUTES, _POLICY_A),
    # H-1, H-2, H-3, H-6
    _template(_rsa(2048, 128), TPM_ALG_SHA256, _HIGH_ATTRIBUTES, _POLICY_B_SHA256),
    _template(_ecc(TPM_ECC_NIST_P256, 128), TPM_ALG_SHA256, _HIGH_ATTRIBUTES, _POLICY_B_SHA256),
    _template(_ecc(TPM_ECC_NIST_P384, 256), TPM_ALG_SHA384, _HIGH_ATTRIBUTES, _POLICY_B_SHA384),
    _template(_rsa(3072, 256), TPM_ALG_SHA384, _HIGH_ATTRIBUTES, _POLICY_B_SHA384),
)
"""The templates that are taken, with nothing in the unique field (annex B.3.3, B.3.4, B.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKey:
    """An endorsement key of the right form; `verify_template` makes it."""

    public: PublicArea
    public_key: PublicKey
    spki_sha256: bytes

    @property
    def name(self) -> str:
        """The name of its EndorsementKey object."""
        return self.spki_sha256.hex()

    @property
    def pem(self) -> str:
        """The public key as people write it down."""
        return self.public_key.public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        ).decode()


def verify_endorsement_key(tpm2b_public: bytes) -> EndorsementKey:
    """E1: the public area is a template's, and the key in it strong.

    Raises:
        EndorsementKeyMalformed: not a TPM2B_PUBLIC.
        EndorsementKeyNotTemplate: some other key, which might decrypt for anybody.
        EndorsementKeyWeak: no valid key, or known to be weak.

    """
    try:
        public = PublicArea.from_tpm2b(tpm2b_public)
    except StructureMalformed as error:
        raise EndorsementKeyMalformed(f"endorsement key: {error}") from None
    if _normalize(public) not in _ACCEPTED_TEMPLATES:
        raise EndorsementKeyNotTemplate("the endorsement key is not of a TCG template")
    try:
        key = public_key_from_area(public)
        reject_weak_key(key)
    except (InvalidKey, WeakKey) as error:
        raise EndorsementKeyWeak(f"endorsement key: {error}") from None
    return EndorsementKey(public=public, public_key=key, spki_sha256=sha256(spki(key)))


def _normalize(public: PublicArea) -> tuple[object, ...]:
    """Collect everything but the key; exponent 65537 in its short form."""
    parameters = public.parameters
    if isinstance(parameters, RsaParameters) and parameters.exponent == RSA_EXPONENT:
        parameters = replace(parameters, exponent=0)
    return public.name_alg, public.attributes, public.auth_policy, parameters


_ACCEPTED_TEMPLATES: Final = tuple(map(_normalize, TEMPLATES))
