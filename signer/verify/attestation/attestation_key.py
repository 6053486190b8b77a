"""The attestation key (A1): a restricted signing key that cannot leave its TPM.

This check covers the public area alone. The challenge proves that the key is in a TPM, since it
wraps the secret for the Name of the same bytes (Keylime CVE-2021-3406).
Source: TPM 2.0 Part 1 section 25 (attributes), docs/protocol.md sections 4 and 5.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from common.public_keys import (
    InvalidKey,
    PublicKey,
    public_key_from_area,
    public_key_pem,
    spki,
)
from common.requests.binding import sha256
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
from signer.verify.weak_keys import WeakKey, reject_weak_key

_SIZE: Final = 2
"""Bytes of the size in a TPM2B_PUBLIC."""
_TEMPLATE_ATTRIBUTES: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.USERWITHAUTH
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.SIGN_ENCRYPT
)
"""0x00050072. No other attribute is set: the key cannot decrypt, and it cannot be duplicated."""
_ALLOWED_ATTRIBUTES: Final = (_TEMPLATE_ATTRIBUTES, _TEMPLATE_ATTRIBUTES | ObjectAttributes.NODA)

_SCHEME_NAMES: Final = {TPM_ALG_RSASSA: "rsassa", TPM_ALG_RSAPSS: "rsapss"}
_CURVE_NAMES: Final = {TPM_ECC_NIST_P256: "p256", TPM_ECC_NIST_P384: "p384"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationKey:
    """An attestation key that passed A1; made by `verify_attestation_key`."""

    public_key: PublicKey
    scheme: Scheme
    tpm_name: bytes
    """The TPM's Name of the public area that holds this key."""
    has_policy: bool = False
    """Whether it has an authorization policy, so that it is not of our template."""

    @property
    def name(self) -> str:
        """Name of its EndorsementKey object, which it has where the key itself is trusted (E2)."""
        return sha256(spki(self.public_key)).hex()

    @property
    def pem(self) -> str:
        """The public key as PEM, as `EndorsementKey` objects hold it."""
        return public_key_pem(self.public_key)


@lru_cache(maxsize=1024)
def verify_attestation_key(
    tpm2b_public: bytes, schemes: frozenset[str], *, allow_policy: bool = False
) -> AttestationKey:
    """Verify the attestation key against its template and the schemes of the policy (A1).

    With `allow_policy` it may have an authorization policy: the caller then requires a certificate.

    Offer, answer and renewals of a node have the same key, and the result depends on the arguments
    alone. So it is cached, about 3 KB for each key. A refusal is not cached.

    Raises:
        AttestationKeyMalformed: the bytes are not a TPM2B_PUBLIC.
        AttestationKeyAttributesNotAllowed: the public area is not of the template.
        AttestationKeySchemeNotAllowed: the policy does not list algorithm, size or curve.
        AttestationKeyWeak: the key is invalid or known to be weak.

    """
    try:
        public = PublicArea.from_tpm2b(tpm2b_public)
    except StructureMalformed as error:
        raise AttestationKeyMalformed(f"attestation key: {error}") from None
    _require_template(public, allow_policy=allow_policy)
    scheme = _scheme(public, schemes)
    try:
        key = public_key_from_area(public)
        reject_weak_key(key)
    except (InvalidKey, WeakKey) as error:
        raise AttestationKeyWeak(f"attestation key: {error}") from None
    return AttestationKey(
        public_key=key,
        scheme=scheme,
        tpm_name=object_name(public.name_alg, tpm2b_public[_SIZE:]),
        has_policy=bool(public.auth_policy),
    )


def _require_template(public: PublicArea, *, allow_policy: bool) -> None:
    if public.attributes not in _ALLOWED_ATTRIBUTES:
        raise AttestationKeyAttributesNotAllowed(
            "the attestation key must be a restricted signing key that is bound to its TPM"
        )
    if public.name_alg != TPM_ALG_SHA256 or (public.auth_policy and not allow_policy):
        raise AttestationKeyAttributesNotAllowed(
            "the attestation key must have nameAlg SHA-256 and no authorization policy"
        )
    if public.parameters.symmetric is not None:
        raise AttestationKeyAttributesNotAllowed(
            "the attestation key must have no symmetric algorithm"
        )


def _scheme(public: PublicArea, schemes: frozenset[str]) -> Scheme:
    scheme = public.parameters.scheme
    if scheme is None or _describe(public.parameters, scheme) not in schemes:
        raise AttestationKeySchemeNotAllowed(
            "the policy does not list the attestation key's scheme, hash, size or curve"
        )
    return scheme


def _describe(parameters: RsaParameters | EccParameters, scheme: Scheme) -> str:
    """Return scheme, size and hash as policies list them, or a string that no policy lists."""
    digest = HASHES[scheme.hash]
    if isinstance(parameters, RsaParameters):
        return f"{_SCHEME_NAMES.get(scheme.algorithm)}-{parameters.key_bits}-{digest}"
    if scheme.algorithm != TPM_ALG_ECDSA or parameters.kdf is not None:
        return ""
    return f"ecdsa-{_CURVE_NAMES.get(parameters.curve)}-{digest}"
