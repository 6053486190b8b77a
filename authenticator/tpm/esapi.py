"""TPM commands through the Enhanced System API of tpm2-tss; the only importer of tpm2_pytss.

attestation.py decides about keys. This module converts bytes to structures of the library and back,
repeats commands while the TPM is busy, converts response codes to leaves of the error tree, and
flushes all that it loads, so that it also works without a resource manager. It stays one module,
because an import contract confines tpm2_pytss to one file.

The libraries print to stderr unless TSS2_LOG is `all+none`, which `cli` sets. An import of this
module takes about 70 ms, so it is imported in the function that uses a TPM.

Source: TPM 2.0 Part 3; TSS 2.0 Enhanced System API.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from tpm2_pytss import ESAPI, TSS2_Exception
from tpm2_pytss.constants import ESYS_TR, TPM2_ALG, TPM2_CAP, TPM2_PT_NV, TPM2_SE, TPMA_NV
from tpm2_pytss.types import (
    TPM2B_DIGEST,
    TPM2B_ENCRYPTED_SECRET,
    TPM2B_ID_OBJECT,
    TPM2B_PUBLIC,
    TPM2B_SENSITIVE_CREATE,
    TPML_DIGEST,
    TPML_PCR_SELECTION,
    TPMT_SIG_SCHEME,
)

from authenticator.errors import (
    CredentialNotForThisTpm,
    TpmBusy,
    TpmConfigurationInvalid,
    TpmFailed,
)
from authenticator.model import Deadline
from authenticator.tpm import response_codes
from authenticator.tpm.bounded_calls import GRACE_SECONDS, BoundedCalls
from authenticator.tpm.device import DEFAULT_TCTI
from authenticator.tpm.loaded_key import LoadedKey, TemplateUnsupported
from authenticator.tpm.open_errors import DeviceBusy, open_error
from authenticator.tpm.templates import EndorsementTemplate
from common.errors import AttestationError
from common.evidence import Statement
from common.tpm.pcrs import PcrSelection, encode_selection, parse_selection
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Tpm2b = TypeVar("_Tpm2b", TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET)

_NV_BUFFER_DEFAULT: Final = 512
_MAX_NV_BUFFER: Final = 2048
"""Bytes of one TPM2_NV_Read: if the TPM does not say, and the maximum of the libraries."""
_MAX_CAP_HANDLES: Final = 254
"""Handles in one response (MAX_CAP_HANDLES); another command gets more."""
_UNREADABLE: Final = frozenset(
    {
        response_codes.RC_AUTH_FAIL,
        response_codes.RC_BAD_AUTH,
        response_codes.RC_HANDLE,
        response_codes.RC_HIERARCHY,  # of the owner, who reads most indices
        response_codes.RC_NV_AUTHORIZATION,
        response_codes.RC_NV_LOCKED,
        response_codes.RC_NV_UNINITIALIZED,
    }
)


class TpmConnection:
    """The TPM commands that an exchange needs, on one ESAPI context.

    Each raises leaves of the error tree.
    """

    def __init__(self, tcti: str, endorsement_auth: bytes, deadline: Deadline) -> None:
        self._has_password = bool(endorsement_auth)
        self._calls = BoundedCalls(deadline, is_retryable=_is_retryable)
        try:
            self._esapi = self._calls.run(lambda: _open(tcti))
            self._esapi.tr_set_auth(ESYS_TR.ENDORSEMENT, endorsement_auth)
        except DeviceBusy as error:
            self._calls.close()
            raise TpmBusy(
                "another program holds the TPM device: use the kernel's resource manager"
                f" ({DEFAULT_TCTI}), which several programs can open"
            ) from error
        except BaseException:
            self._calls.close()
            raise

    def close(self) -> None:
        """Close the connection, unless a call in it does not return."""
        try:
            self._calls.run(self._esapi.close, at_least=GRACE_SECONDS)
        except TpmBusy as error:
            _logger.warning("the TPM connection stays open: %s", error)
        self._calls.close()

    def handles(self, first: int, last: int) -> tuple[int, ...]:
        """Return the handles in use from `first` to `last`, ascending."""
        handles: list[int] = []
        more = True
        while more:
            more, page = self._handles_from(handles[-1] + 1 if handles else first)
            handles += page
            more = more and bool(page) and page[-1] < last
        return tuple(handle for handle in handles if handle <= last)

    def _handles_from(self, first: int) -> tuple[bool, list[int]]:
        more, data = self._command(
            "TPM2_GetCapability",
            lambda: self._esapi.get_capability(TPM2_CAP.HANDLES, first, _MAX_CAP_HANDLES),
        )
        return bool(more), [int(handle) for handle in data.data.handles]

    @contextmanager
    def persistent(self, handle: int) -> Iterator[LoadedKey | None]:
        """Use the key at a persistent handle; None if there is no usable key."""
        try:
            key = self._tr_from_public(handle)
        except _Unreadable:
            yield None
            return
        with self._flushed(key, self._esapi.tr_close):
            public, _, qualified = self._command(
                "TPM2_ReadPublic", lambda: self._esapi.read_public(key)
            )
            yield LoadedKey(handle=key, public=public.marshal(), qualified_name=bytes(qualified))

    @contextmanager
    def primary(self, template: PublicArea) -> Iterator[LoadedKey]:
        """Create a primary key in the endorsement hierarchy, and flush it after use.

        Raises `TemplateUnsupported`.
        """
        area, _ = TPM2B_PUBLIC.unmarshal(template.to_tpm2b())
        handle, public, *_ = self._command(
            "TPM2_CreatePrimary",
            lambda: self._esapi.create_primary(TPM2B_SENSITIVE_CREATE(), area, ESYS_TR.ENDORSEMENT),
            special=_unsupported,
        )
        with self._flushed(handle, self._esapi.flush_context):
            yield LoadedKey(handle=handle, public=public.marshal(), qualified_name=b"")

    def nv_contents(self, index: int) -> bytes:
        """Return the contents of an NV index; empty if it cannot be read without a secret."""
        try:
            reference = self._tr_from_public(index)
            with self._flushed(reference, self._esapi.tr_close):
                return self._read_nv(reference)
        except _Unreadable as unreadable:
            _logger.warning("NV index %#x is left out: %s", index, unreadable)
            return b""

    def activate(
        self,
        endorsement: LoadedKey,
        template: EndorsementTemplate,
        attestation: LoadedKey,
        *,
        credential_blob: bytes,
        encrypted_secret: bytes,
    ) -> bytes:
        """Return the secret that was wrapped for both keys. Raises `CredentialNotForThisTpm`."""
        blob = _structure(TPM2B_ID_OBJECT, credential_blob)
        secret = _structure(TPM2B_ENCRYPTED_SECRET, encrypted_secret)
        with self._endorsement_policy(template) as session:
            credential = self._command(
                "TPM2_ActivateCredential",
                lambda: self._esapi.activate_credential(
                    ESYS_TR(attestation.handle),
                    ESYS_TR(endorsement.handle),
                    blob,
                    secret,
                    session1=ESYS_TR.PASSWORD,
                    session2=session,
                ),
                special=self._not_for_this_tpm,
            )
        return bytes(credential)

    def certify_creation(self, template: PublicArea, key: LoadedKey) -> Statement:
        """Make a primary key again, and sign with `key` that the TPM made it."""
        area, _ = TPM2B_PUBLIC.unmarshal(template.to_tpm2b())
        handle, _, _, creation_hash, ticket = self._command(
            "TPM2_CreatePrimary",
            lambda: self._esapi.create_primary(TPM2B_SENSITIVE_CREATE(), area, ESYS_TR.ENDORSEMENT),
        )
        with self._flushed(handle, self._esapi.flush_context):
            attest, signature = self._command(
                "TPM2_CertifyCreation",
                lambda: self._esapi.certify_creation(
                    ESYS_TR(key.handle),
                    handle,
                    b"",
                    creation_hash,
                    TPMT_SIG_SCHEME(scheme=TPM2_ALG.NULL),
                    ticket,
                ),
            )
        return Statement(attest=bytes(attest), signature=signature.marshal())

    def read_pcrs(self, selection: PcrSelection) -> Mapping[str, Mapping[int, bytes]]:
        """Return the values of as many of the selected PCRs as fit into one response.

        Empty if no bank is allocated.
        """
        requested, _ = TPML_PCR_SELECTION.unmarshal(encode_selection(selection))
        _, returned, digests = self._command(
            "TPM2_PCR_Read", lambda: self._esapi.pcr_read(requested)
        )
        values: dict[str, dict[int, bytes]] = {}
        for (bank, index), digest in zip(_pcrs_of(returned), digests, strict=False):
            values.setdefault(bank, {})[index] = bytes(digest)
        return values

    def quote(self, key: LoadedKey, selection: PcrSelection, extra_data: bytes) -> Statement:
        """Sign the PCRs of the selection."""
        requested, _ = TPML_PCR_SELECTION.unmarshal(encode_selection(selection))
        attest, signature = self._command(
            "TPM2_Quote", lambda: self._esapi.quote(ESYS_TR(key.handle), requested, extra_data)
        )
        return Statement(attest=bytes(attest), signature=signature.marshal())

    @contextmanager
    def _endorsement_policy(self, template: EndorsementTemplate) -> Iterator[ESYS_TR]:
        """Satisfy the policy of the endorsement key: hierarchy password, then its PolicyOR."""
        session = self._command(
            "TPM2_StartAuthSession",
            lambda: self._esapi.start_auth_session(
                ESYS_TR.NONE, ESYS_TR.NONE, TPM2_SE.POLICY, None, template.public.name_alg
            ),
        )
        with self._flushed(session, self._esapi.flush_context):
            self._command(
                "TPM2_PolicySecret",
                lambda: self._esapi.policy_secret(ESYS_TR.ENDORSEMENT, session, expiration=0),
            )
            if template.policy_or:
                branches = TPML_DIGEST([TPM2B_DIGEST(branch) for branch in template.policy_or])
                self._command("TPM2_PolicyOR", lambda: self._esapi.policy_or(session, branches))
            yield session

    def _not_for_this_tpm(self, code: int) -> Exception | None:
        """Return an error if TPM2_ActivateCredential failed because of its parameters.

        For an RSA ciphertext that cannot be decrypted, libtpms returns TPM_RC_FAILURE. Elsewhere
        that means failure mode, in which a TPM executes no other command.
        """
        failure = response_codes.base_code(code) == response_codes.RC_FAILURE
        if not response_codes.is_parameter_error(code) and not (failure and self._responds()):
            return None
        return CredentialNotForThisTpm(
            "the challenge is for another TPM or another attestation key, or was changed in"
            " transit: the next call starts a new exchange",
            detail=f"TPM2_ActivateCredential returned {code:#x}",
        )

    def _responds(self) -> bool:
        try:
            self._calls.run(lambda: self._esapi.get_random(1))
        except TSS2_Exception:
            return False
        return True

    def _read_nv(self, index: ESYS_TR) -> bytes:
        """Read an index in pieces. Raises _Unreadable."""
        public, _ = self._command("TPM2_NV_ReadPublic", lambda: self._esapi.nv_read_public(index))
        auth = _nv_authority(public.nvPublic.attributes, index)
        size, piece_size = int(public.nvPublic.dataSize), self._nv_buffer()

        def read_at(offset: int) -> bytes:
            piece = self._esapi.nv_read(index, min(size - offset, piece_size), offset, auth)
            return bytes(piece)

        return b"".join(
            self._command("TPM2_NV_Read", partial(read_at, offset), special=_unreadable)
            for offset in range(0, size, piece_size)
        )

    def _nv_buffer(self) -> int:
        """Return how many bytes of an NV index one command reads."""
        _, data = self._command(
            "TPM2_GetCapability",
            lambda: self._esapi.get_capability(TPM2_CAP.TPM_PROPERTIES, TPM2_PT_NV.BUFFER_MAX, 1),
        )
        sizes = [
            int(p.value) for p in data.data.tpmProperties if p.property == TPM2_PT_NV.BUFFER_MAX
        ]
        return min([*sizes, _MAX_NV_BUFFER]) if sizes else _NV_BUFFER_DEFAULT

    def _tr_from_public(self, handle: int) -> ESYS_TR:
        """Return the ESYS_TR of a persistent key or an NV index.

        Raises _Unreadable if it does not exist or its hierarchy is disabled.
        """
        return self._command(
            "Esys_TR_FromTPMPublic",
            lambda: self._esapi.tr_from_tpmpublic(handle),
            special=_unreadable,
        )

    @contextmanager
    def _flushed(self, handle: ESYS_TR, release: Callable[[ESYS_TR], None]) -> Iterator[None]:
        """Release a handle after use, even after the deadline: flush it or close its ESYS_TR."""
        try:
            yield
        finally:
            try:
                self._calls.run(lambda: release(handle), at_least=GRACE_SECONDS)
            except (AttestationError, TSS2_Exception) as error:
                # An earlier error says more, and a TPM that was reset has nothing to flush.
                _logger.warning("a TPM handle is not released: %s", error)

    def _command(
        self,
        name: str,
        call: Callable[[], _T],
        *,
        special: Callable[[int], Exception | None] = lambda _: None,
    ) -> _T:
        """Send a command; `special` returns the error of a code that has a special meaning here."""
        _logger.debug("TPM command %s", name)
        try:
            return self._calls.run(call)
        except TSS2_Exception as error:
            raise special(error.rc) or response_codes.error_for_code(
                error.rc, name, has_password=self._has_password
            ) from error


class _Unreadable(Exception):
    """Nothing is at this handle, or it cannot be read without a secret."""


def _open(tcti: str) -> ESAPI:
    if not tcti:
        raise TpmConfigurationInvalid(
            f"the setting tcti is empty; the usual value is {DEFAULT_TCTI}"
        )
    try:
        return ESAPI(tcti)
    except TSS2_Exception as error:
        raise open_error(tcti, error.rc) from error


def _is_retryable(error: Exception) -> bool:
    """Return whether the same call may succeed a moment later."""
    if isinstance(error, TSS2_Exception):
        return response_codes.is_retryable(error.rc)
    return isinstance(error, DeviceBusy)


def _unsupported(code: int) -> Exception | None:
    return TemplateUnsupported() if response_codes.is_unsupported(code) else None


def _unreadable(code: int) -> Exception | None:
    return _Unreadable(hex(code)) if response_codes.base_code(code) in _UNREADABLE else None


def _pcrs_of(selection: TPML_PCR_SELECTION) -> list[tuple[str, int]]:
    try:
        banks = parse_selection(selection.marshal())
    except StructureMalformed as error:
        raise TpmFailed(
            "the TPM returned other PCRs than the requested ones", detail=str(error)
        ) from error
    return [(bank, index) for bank, indices in banks.items() for index in indices]


def _structure(kind: type[_Tpm2b], data: bytes) -> _Tpm2b:
    """Unmarshal a TPM2B of the challenge. Raises `CredentialNotForThisTpm` for bytes after it."""
    value: _Tpm2b
    try:
        value, size = kind.unmarshal(data)
    except TSS2_Exception as error:
        raise CredentialNotForThisTpm(
            "the challenge does not hold the structures of a TPM"
        ) from error
    if size != len(data):
        raise CredentialNotForThisTpm("the challenge has bytes after its end")
    return value


def _nv_authority(attributes: TPMA_NV, index: ESYS_TR) -> ESYS_TR:
    """Return whose empty password reads an index, such that no attempt counts for a lockout."""
    if not attributes & TPMA_NV.WRITTEN:
        raise _Unreadable("it was never written")
    if attributes & TPMA_NV.AUTHREAD and attributes & TPMA_NV.NO_DA:
        return index
    if attributes & TPMA_NV.OWNERREAD:
        return ESYS_TR.OWNER
    raise _Unreadable("it can only be read with a secret")
