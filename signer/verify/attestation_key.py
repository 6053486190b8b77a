"""The attestation key (A1): a key that only signs what its TPM made, and never left it.

What is proved here is only the public area's form. That a TPM keeps to it is proved by the
challenge, which wraps its secret for the Name of these very bytes (Keylime CVE-2021-3406).
Source: TPM 2.0 Part 1 section 25 (attributes), docs/protocol.md sections 4 and 5.
"""

from dataclasses import dataclass
from typing import Final

from common.public_keys import InvalidKey, PublicKey, public_key_from_area
from common.tpm.constants import (
    HASHES,
    TPM_ALG_ECDSA,
    TPM_ALG_RSAPSS,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ECC_NIST_P256,
    TPM_ECC_NIST_P384,
    ObjectAttributes,
)
from common.tpm.public import EccParameters, PublicArea, RsaParameters, Scheme, object_name
from common.tpm.reader import StructureMalformed
from signer.errors import (
    AttestationKeyAttributesNotAllowed,
    AttestationKeyMalformed,
    AttestationKeySchemeNotAllowed,
    AttestationKeyWeak,
)
from signer.policy import Policy
from signer.verify.weak_keys import WeakKey, reject_weak_key

_SIZE: Final = 2
"""Bytes of the size before the area of a TPM2B_PUBLIC."""
_TEMPLATE: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.USERWITHAUTH
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.SIGN_ENCRYPT
)
"""0x00050072 of the template: nothing else is set, so neither decrypt nor a way out of the TPM."""
_ATTRIBUTES: Final = (_TEMPLATE, _TEMPLATE | ObjectAttributes.NODA)

_SCHEME_NAMES: Final = {TPM_ALG_RSASSA: "rsassa", TPM_ALG_RSAPSS: "rsapss"}
_CURVE_NAMES: Final = {TPM_ECC_NIST_P256: "p256", TPM_ECC_NIST_P384: "p384"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationKey:
    """An attestation key of the right form; `verify_attestation_key` makes it."""

    public_key: PublicKey
    scheme: Scheme
    name: bytes
    """The TPM's Name of the public area that all of this was read from."""


def verify_attestation_key(tpm2b_public: bytes, policy: Policy) -> AttestationKey:
    """Check the attestation key against its template and the schemes of the policy (A1).

    Raises:
        AttestationKeyMalformed: not a TPM2B_PUBLIC.
        AttestationKeyAttributesNotAllowed: not of the template.
        AttestationKeySchemeNotAllowed: another algorithm, size or curve than the policy lists.
        AttestationKeyWeak: no valid key, or known to be weak.

    """
    try:
        public = PublicArea.from_tpm2b(tpm2b_public)
    except StructureMalformed as error:
        raise AttestationKeyMalformed(f"attestation key: {error}") from None
    _require_template(public)
    scheme = _scheme(public, policy)
    try:
        key = public_key_from_area(public)
        reject_weak_key(key)
    except (InvalidKey, WeakKey) as error:
        raise AttestationKeyWeak(f"attestation key: {error}") from None
    name = object_name(public.name_alg, tpm2b_public[_SIZE:])
    return AttestationKey(public_key=key, scheme=scheme, name=name)


def _require_template(public: PublicArea) -> None:
    if public.attributes not in _ATTRIBUTES:
        raise AttestationKeyAttributesNotAllowed(
            "the attestation key is not a restricted signing key that is bound to its TPM"
        )
    if public.name_alg != TPM_ALG_SHA256 or public.auth_policy:
        raise AttestationKeyAttributesNotAllowed(
            "the attestation key has another name algorithm, or a policy"
        )
    if public.parameters.symmetric is not None:
        raise AttestationKeyAttributesNotAllowed("the attestation key has a symmetric algorithm")


def _scheme(public: PublicArea, policy: Policy) -> Scheme:
    scheme = public.parameters.scheme
    if scheme is None or _describe(public.parameters, scheme) not in policy.attestation_key_schemes:
        raise AttestationKeySchemeNotAllowed(
            "the attestation key's scheme, hash, size or curve is not one that the policy takes"
        )
    return scheme


def _describe(parameters: RsaParameters | EccParameters, scheme: Scheme) -> str:
    """Write scheme, size and hash as policies list them; what has no such name is in no policy."""
    digest = HASHES[scheme.hash]
    if isinstance(parameters, RsaParameters):
        return f"{_SCHEME_NAMES.get(scheme.algorithm)}-{parameters.key_bits}-{digest}"
    if scheme.algorithm != TPM_ALG_ECDSA or parameters.kdf is not None:
        return ""
    return f"ecdsa-{_CURVE_NAMES.get(parameters.curve)}-{digest}"
