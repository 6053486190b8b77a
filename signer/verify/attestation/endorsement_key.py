"""The endorsement key (E1): a TCG template created it, and it is strong.

In a TPM, a key of a template can only decrypt, and only under a policy of the TCG. That the key is
in a TPM is not shown here. Nor is it the only one: a TPM makes another key of the same template for
each `unique`, and in each hierarchy. Which key is trusted is decided in signer/verify/grounds/.
Source: TCG EK Credential Profile 2.x, annex B; docs/protocol.md sections 4 and 5.
"""

from dataclasses import dataclass
from functools import lru_cache

from common.public_keys import (
    InvalidKey,
    PublicKey,
    public_key_from_area,
    public_key_pem,
    spki,
)
from common.requests.binding import sha256
from common.tpm.endorsement_templates import find_template
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed
from signer.errors import EndorsementKeyMalformed, EndorsementKeyNotTemplate, EndorsementKeyWeak
from signer.verify.weak_keys import WeakKey, reject_weak_key


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKey:
    """An endorsement key that passed E1; made by `verify_endorsement_key`."""

    public: PublicArea
    public_key: PublicKey
    spki_sha256: bytes
    tpm_name: bytes
    """The TPM's Name of the public area that holds this key."""

    @property
    def name(self) -> str:
        """Name of its EndorsementKey object: the digest of its SubjectPublicKeyInfo in hex."""
        return self.spki_sha256.hex()

    @property
    def pem(self) -> str:
        """The public key as PEM, as `EndorsementKey` objects hold it."""
        return public_key_pem(self.public_key)


@lru_cache(maxsize=1024)
def verify_endorsement_key(tpm2b_public: bytes) -> EndorsementKey:
    """Verify that the public area is of a template, and that its key is valid and strong (E1).

    Offer, answer and renewals of a node have the same key, and the result depends on these bytes
    alone. So it is cached, about 3 KB for each key. A refusal is not cached.

    Raises:
        EndorsementKeyMalformed: the bytes are not a TPM2B_PUBLIC.
        EndorsementKeyNotTemplate: another public area, which may decrypt for any caller.
        EndorsementKeyWeak: the key is invalid or known to be weak.

    """
    try:
        public = PublicArea.from_tpm2b(tpm2b_public)
    except StructureMalformed as error:
        raise EndorsementKeyMalformed(f"endorsement key: {error}") from None
    if find_template(public) is None:
        raise EndorsementKeyNotTemplate("the endorsement key must be of a TCG template")
    try:
        key = public_key_from_area(public)
        reject_weak_key(key)
    except (InvalidKey, WeakKey) as error:
        raise EndorsementKeyWeak(f"endorsement key: {error}") from None
    return EndorsementKey(
        public=public,
        public_key=key,
        spki_sha256=sha256(spki(key)),
        tpm_name=public.name(),
    )
