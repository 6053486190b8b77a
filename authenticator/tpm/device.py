"""What an exchange asks of a TPM, and the values that it gives back.

`Tpm` is the seam: `authenticator.tpm.esapi` implements it on a real TPM, the tests' fake in memory.
Everything here is bytes as the TPM wrote them, so that nothing between TPM and signer changes what
was signed; names of banks are those of docs/protocol.md section 4 ("sha256").

No method leaves a session, a transient key or a sequence in the TPM, whether it returns or raises;
nothing that is in the TPM already is changed. What a method raises is a leaf of `common.errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

KeyType = Literal["auto", "rsa", "ecc"]
"""Which endorsement key is used; `auto`: the first with a certificate in the TPM, RSA first."""

DEFAULT_TCTI: Final = "device:/dev/tpmrm0"
"""The kernel's resource manager: it takes back what a killed process left in the TPM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEndorsementKey:
    """The endorsement key and the certificates that were found with it.

    `public` is a TPM2B_PUBLIC. `certificates` are the bytes of the NV indices: the key's own first,
    then the intermediates, possibly none; NV headers, trailing bytes and odd encodings are left for
    the signer to judge.
    """

    public: bytes
    certificates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """PCR values and what the TPM says about them; the two agree.

    `attest` is a TPMS_ATTEST without size prefix, `signature` a TPMT_SIGNATURE, `pcrs` holds bank,
    index and raw digest of exactly the selection that was asked for.
    """

    attest: bytes
    signature: bytes
    pcrs: Mapping[str, Mapping[int, bytes]]


class Tpm(Protocol):
    """An open TPM; not for use by several threads at once.

    Every method may raise `TpmBusy`, `TpmUnavailable`, `TpmLockedOut`, `TpmFailed`,
    `TpmPermissionDenied`, `TpmOutOfMemory`, `EndorsementAuthorizationRequired` and
    `EndorsementHierarchyDisabled`.
    """

    def endorsement_key(self) -> DeviceEndorsementKey:
        """Return the same key each time, for as long as the TPM's endorsement seed lives.

        Raises EndorsementKeyUnavailable when the TPM can make none of the key type asked for.
        """
        ...

    def attestation_key(self) -> bytes:
        """Return the TPM2B_PUBLIC of the attestation key, made again from its template each time.

        The same TPM gives the same key for as long as its endorsement seed lives.
        """
        ...

    def activate_credential(self, credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        """Return the secret that was wrapped for this endorsement key and this attestation key.

        The arguments are the TPM2B_ID_OBJECT and the TPM2B_ENCRYPTED_SECRET of the challenge.
        Raises CredentialNotForThisTpm when they were made for other keys or changed on the way.
        """
        ...

    def quote(self, selection: Mapping[str, Sequence[int]], extra_data: bytes) -> Quote:
        """Sign the PCRs of `selection` (bank to indices) and `extra_data` with the attestation key.

        Raises PcrBankNotAllocated when the TPM has not all of them, PcrsUnstable when they change
        faster than they can be read, PcrSelectionUnsupported for a bank or an index unknown here.
        """
        ...
