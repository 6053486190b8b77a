"""Opens a TPM: attestation.py decides about its keys, esapi.py sends the commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from authenticator.errors import TpmConfigurationInvalid
from authenticator.model import Deadline
from authenticator.tpm.attestation import TpmAttestor
from authenticator.tpm.device import DEFAULT_TCTI, KeyType, Tpm
from authenticator.tpm.esapi import TpmConnection

_MAX_AUTH_BYTES: Final = 64
"""Bytes of a TPM2B_AUTH: the largest digest."""


@contextmanager
def open_tpm(
    tcti: str = DEFAULT_TCTI,
    *,
    key_type: KeyType = "auto",
    endorsement_auth: bytes = b"",
    prefer_certified: bool = False,
    deadline: Deadline,
) -> Iterator[Tpm]:
    """Open the TPM at `tcti`, which is any TCTI configuration of tpm2-tss.

    `endorsement_auth` is the password of the endorsement hierarchy; few machines have one. With
    `prefer_certified`, the attestation key is the one that a platform certified, if any.
    Raises `TpmUnavailable`, `TpmBusy`, `TpmPermissionDenied`, `TpmConfigurationInvalid`.
    """
    if len(endorsement_auth) > _MAX_AUTH_BYTES:
        raise TpmConfigurationInvalid(
            f"the password of the endorsement hierarchy must have {_MAX_AUTH_BYTES} bytes at most:"
            " correct endorsementPasswordFile"
        )
    connection = TpmConnection(tcti, endorsement_auth, deadline)
    try:
        yield TpmAttestor(connection, key_type, prefer_certified=prefer_certified)
    finally:
        connection.close()
