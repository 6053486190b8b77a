"""The operations of a TPM that an exchange needs, and their results.

`attestation.py` implements `Tpm` on a real TPM; tests/fakes has one in memory. All bytes are as the
TPM wrote them, so that nothing between TPM and signer changes what was signed. Banks are named as
in docs/protocol.md section 4 ("sha256").

No method leaves a session, a transient key or a sequence in the TPM, whether it returns or raises,
and none changes what is in the TPM already. Methods raise leaves of `authenticator.errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:  # a cached credential needs no evidence
    from common.evidence import Statement

KeyType = Literal["auto", "rsa", "ecc"]
"""Which endorsement key to use; `auto`: the first with a certificate in the TPM, RSA first."""

DEFAULT_TCTI: Final = "device:/dev/tpmrm0"
"""The resource manager of the kernel: it flushes what a killed process left in the TPM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEndorsementKey:
    """The endorsement key and its certificates.

    `public` is a TPM2B_PUBLIC. `certificates` are the contents of the NV indices: first that of the
    key, then the intermediates; there may be no certificate. NV headers, trailing bytes and unusual
    encodings are unchanged: the signer verifies them.
    """

    public: bytes
    certificates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAttestationKey:
    """The attestation key: a TPM2B_PUBLIC, and its certificate if the platform certified it.

    `certificate` is the content of an NV index, as for `DeviceEndorsementKey`.
    """

    public: bytes
    certificate: bytes | None = None
    endorsement_creation: "Statement | None" = None
    """With a certificate: that the TPM made the endorsement key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """PCR values and the quote over them; the two agree.

    `attest` is a TPMS_ATTEST without size prefix, `signature` a TPMT_SIGNATURE, `pcrs` holds bank,
    index and raw digest of exactly the requested selection.
    """

    attest: bytes
    signature: bytes
    pcrs: Mapping[str, Mapping[int, bytes]]


class Tpm(Protocol):
    """An open TPM. Only one thread may use it at a time.

    Every method may raise `TpmBusy`, `TpmUnavailable`, `TpmLockedOut`, `TpmFailed`,
    `TpmPermissionDenied`, `TpmOutOfMemory`, `EndorsementAuthorizationRequired` and
    `EndorsementHierarchyDisabled`.
    """

    def endorsement_key(self) -> DeviceEndorsementKey:
        """Return the endorsement key: the same one until the endorsement seed changes.

        Raises `EndorsementKeyUnavailable` if the TPM cannot make a key of the configured type.
        """
        ...

    def attestation_key(self) -> DeviceAttestationKey:
        """Return the attestation key.

        The TPM makes the key from its template each time: the same one until the endorsement seed
        changes. Where a platform has certified another key in this TPM, it may be that one.
        """
        ...

    def activate_credential(self, credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        """Return the secret that was wrapped for this endorsement key and attestation key.

        The arguments are the TPM2B_ID_OBJECT and the TPM2B_ENCRYPTED_SECRET of the challenge.
        Raises `CredentialNotForThisTpm` if they were made for other keys or have changed.
        """
        ...

    def quote(self, selection: Mapping[str, Sequence[int]], extra_data: bytes) -> Quote:
        """Sign the PCRs of `selection` (bank to indices) and `extra_data` with the attestation key.

        Raises `PcrBankNotAllocated` if the TPM does not have all of them, `PcrsUnstable` if they
        change faster than they can be read, `PcrSelectionUnsupported` for an unknown bank or index.
        """
        ...
