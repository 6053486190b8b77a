"""The keys that a TPM makes again from its endorsement seed, by the TCG's templates and by ours.

A primary key follows from seed and template alone: the same template gives the same key, whether
or not a copy of it is kept at a persistent handle. So the handle is a shortcut (an RSA key takes
some TPMs seconds), and the choice between keys never depends on it.

The attestation key is made in the endorsement hierarchy too. That hierarchy's seed outlives
TPM2_Clear and a change of owner, its password is needed for the credential anyway, and only there
(or in the platform's) does a quote tell reset counters and firmware version in clear.

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
"""PolicyAuthorizeNV: whatever the owner has written into an index of its own; not used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementTemplate:
    """One endorsement key of the profile, and where a TPM keeps what belongs to it.

    `name` is the profile's. `policy_or` holds the branches of its PolicyOR, empty for the low
    range, whose policy is PolicySecret alone.
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
        """Return the branches that the policy is an OR of."""
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
    EndorsementTemplate(
        name="L-1",
        certificate_index=0x01C00002,
        persistent_handle=0x81010001,
    ),
    EndorsementTemplate(
        name="H-1",
        certificate_index=0x01C00012,
        persistent_handle=0x81010012,
    ),
    EndorsementTemplate(
        name="H-6",
        certificate_index=0x01C0001C,
        persistent_handle=0x8101001C,
    ),
)
_ECC: Final = (
    EndorsementTemplate(
        name="L-2",
        certificate_index=0x01C0000A,
        persistent_handle=0x81010002,
    ),
    EndorsementTemplate(
        name="H-2",
        certificate_index=0x01C00014,
        persistent_handle=0x81010014,
    ),
    EndorsementTemplate(
        name="H-3",
        certificate_index=0x01C00016,
        persistent_handle=0x81010016,
    ),
)

ENDORSEMENT_TEMPLATES: Final[Mapping[KeyType, tuple[EndorsementTemplate, ...]]] = MappingProxyType(
    {"auto": _RSA + _ECC, "rsa": _RSA, "ecc": _ECC}
)
"""The templates to choose from for each setting, the preferred one first."""

_ATTESTATION: Final = (
    ObjectAttributes.FIXEDTPM
    | ObjectAttributes.FIXEDPARENT
    | ObjectAttributes.SENSITIVEDATAORIGIN
    | ObjectAttributes.USERWITHAUTH
    | ObjectAttributes.RESTRICTED
    | ObjectAttributes.SIGN_ENCRYPT
)

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
"""The attestation key's templates; the second is for TPMs that can do no ECC."""


def order_by_preference(
    key_type: KeyType, indices: frozenset[int]
) -> tuple[EndorsementTemplate, ...]:
    """Order the templates of `key_type`, those with a certificate among the NV `indices` first.

    The certificates decide because they stay: firmware and TPM2_Clear leave them alone.
    """
    templates = ENDORSEMENT_TEMPLATES[key_type]
    return tuple(sorted(templates, key=lambda t: t.certificate_index not in indices))
