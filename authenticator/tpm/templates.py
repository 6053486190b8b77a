"""Templates of the endorsement keys (those of the TCG) and of the attestation key (our own).

A primary key is derived from seed and template alone: the same template gives the same key, with or
without a copy at a persistent handle. The handle is a shortcut, because some TPMs take seconds for
an RSA key. The choice of the key never depends on it.

The attestation key is in the endorsement hierarchy too. The seed of that hierarchy survives
TPM2_Clear and a change of owner, and TPM2_ActivateCredential needs its password anyway. Only there
and in the platform hierarchy does a quote show reset counters and firmware version in clear.

Source: TCG EK Credential Profile 2.5, section 2.2.1 and annex B; docs/protocol.md section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from authenticator.tpm.device import KeyType
from common.tpm.constants import (
    TPM_ALG_ECDSA,
    TPM_ALG_RSASSA,
    TPM_ALG_SHA256,
    TPM_ALG_SHA384,
    TPM_ECC_NIST_P256,
    ObjectAttributes,
)
from common.tpm.endorsement_templates import POLICY_A, TEMPLATES, find_template
from common.tpm.public import EccParameters, EccPoint, PublicArea, RsaParameters, Scheme
from common.tpm.reader import StructureMalformed

NV_CHAIN_FIRST: Final = 0x01C00100
NV_CHAIN_LAST: Final = 0x01C001FF
"""NV indices of intermediate certificates (profile 2.2.1.5)."""

CERTIFIED_ATTESTATION_KEY: Final = 0x81000003
CERTIFIED_ATTESTATION_KEY_INDEX: Final = 0x01C101D0
"""Persistent handle of the attestation key that Azure certifies, and NV index of its certificate
(Azure, Trusted Launch and Confidential VM)."""

POLICY_C: Final[Mapping[int, bytes]] = MappingProxyType(
    {
        TPM_ALG_SHA256: bytes.fromhex(
            "3767e2edd43ff45a3a7e1eaefcef78643dca964632e7aad82c673a30d8633fde"
        ),
        TPM_ALG_SHA384: bytes.fromhex(
            "d6032ce61f2fb3c240eb3cf6a33237ef2b6a16f4293c22b455e261cffd217ad5"
            "b4947c2d73e63005eed2dc2b3593d165"
        ),
    }
)
"""PolicyAuthorizeNV: a policy that the owner has written into an NV index; not used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementTemplate:
    """One endorsement key template of the TCG EK profile: its name (`L-1`) and its handles.

    The handles are the NV index of the certificate and the persistent handle of the key.
    """

    name: str
    certificate_index: int
    persistent_handle: int

    @property
    def public(self) -> PublicArea:
        """Return the public area for TPM2_CreatePrimary."""
        return TEMPLATES[self.name]

    @property
    def policy_or(self) -> tuple[bytes, ...]:
        """Return the branches of its PolicyOR; empty for the low range, which has PolicySecret."""
        if self.public.auth_policy == POLICY_A[self.public.name_alg]:
            return ()
        return POLICY_A[self.public.name_alg], POLICY_C[self.public.name_alg]

    def matches(self, public: bytes) -> bool:
        """Return whether this template created a key with this TPM2B_PUBLIC."""
        try:
            return find_template(PublicArea.from_tpm2b(public)) == self.name
        except StructureMalformed:
            return False


_RSA: Final = (
    EndorsementTemplate(name="L-1", certificate_index=0x01C00002, persistent_handle=0x81010001),
    EndorsementTemplate(name="H-1", certificate_index=0x01C00012, persistent_handle=0x81010012),
    EndorsementTemplate(name="H-6", certificate_index=0x01C0001C, persistent_handle=0x8101001C),
)
_ECC: Final = (
    EndorsementTemplate(name="L-2", certificate_index=0x01C0000A, persistent_handle=0x81010002),
    EndorsementTemplate(name="H-2", certificate_index=0x01C00014, persistent_handle=0x81010014),
    EndorsementTemplate(name="H-3", certificate_index=0x01C00016, persistent_handle=0x81010016),
)

ENDORSEMENT_TEMPLATES: Final[Mapping[KeyType, tuple[EndorsementTemplate, ...]]] = MappingProxyType(
    {"auto": _RSA + _ECC, "rsa": _RSA, "ecc": _ECC}
)
"""The templates for each setting, the preferred one first."""

_ATTESTATION: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.USERWITHAUTH
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.SIGN_ENCRYPT
    | ObjectAttributes.NODA
)
"""noDA: without it, a power failure after a use of the key counts as a failed authorization, and a
few of them lock the TPM (TPM 2.0 Part 1, "Dictionary Attack Protection"). The key needs no such
protection: its auth value is empty."""

ATTESTATION_TEMPLATES: Final = (
    PublicArea(
        name_alg=TPM_ALG_SHA256,
        attributes=_ATTESTATION,
        auth_policy=b"",
        parameters=EccParameters(
            symmetric=None,
            scheme=Scheme(algorithm=TPM_ALG_ECDSA, hash=TPM_ALG_SHA256),
            curve=TPM_ECC_NIST_P256,
            kdf=None,
        ),
        unique=EccPoint(x=b"", y=b""),
    ),
    PublicArea(
        name_alg=TPM_ALG_SHA256,
        attributes=_ATTESTATION,
        auth_policy=b"",
        parameters=RsaParameters(
            symmetric=None,
            scheme=Scheme(algorithm=TPM_ALG_RSASSA, hash=TPM_ALG_SHA256),
            key_bits=2048,
            exponent=0,
        ),
        unique=b"",
    ),
)
"""The second template is for TPMs without ECC."""


def order_by_preference(
    key_type: KeyType, indices: frozenset[int]
) -> tuple[EndorsementTemplate, ...]:
    """Order the templates of `key_type`, those with a certificate among the NV `indices` first.

    The certificates decide, because firmware and TPM2_Clear do not remove them.
    """
    templates = ENDORSEMENT_TEMPLATES[key_type]
    return tuple(sorted(templates, key=lambda t: t.certificate_index not in indices))
