"""TPM commands through the Enhanced System API of tpm2-tss; the only importer of tpm2_pytss.

Decides nothing about keys: attesting.py does. Here bytes become the library's structures and back,
busy TPMs are asked again until the deadline, response codes become leaves of common/errors.py,
and all that was loaded is flushed, so that it works without a resource manager too.

The libraries print to standard error unless TSS2_LOG is `all+none`, which is for `cli` to set.
Importing this takes some 70 ms: it is imported where a TPM is really used.

Source: TPM 2.0 Part 3; TSS 2.0 Enhanced System API.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

from tpm2_pytss import ESAPI, TSS2_Exception
from tpm2_pytss.constants import ESYS_TR, TPM2_CAP, TPM2_PT_NV, TPM2_SE, TPMA_NV
from tpm2_pytss.types import (
    TPM2B_DIGEST,
    TPM2B_ENCRYPTED_SECRET,
    TPM2B_ID_OBJECT,
    TPM2B_PUBLIC,
    TPM2B_SENSITIVE_CREATE,
    TPML_DIGEST,
    TPML_PCR_SELECTION,
)

from authenticator.errors import (
    CredentialNotForThisTpm,
    TpmBusy,
    TpmConfigurationInvalid,
    TpmFailed,
)
from authenticator.model import Deadline
from authenticator.tpm import response_codes
from authenticator.tpm.attestation import LoadedKey, RawQuote, TemplateUnsupported, TpmAttestor
from authenticator.tpm.bounded_calls import GRACE_SECONDS, BoundedCalls
from authenticator.tpm.device import DEFAULT_TCTI, KeyType, Tpm
from authenticator.tpm.open_errors import DeviceBusy, open_error
from authenticator.tpm.templates import EndorsementTemplate
from common.errors import AttestationError
from common.tpm.pcrs import PcrSelection, encode_selection, parse_selection
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Tpm2b = TypeVar("_Tpm2b", TPM2B_ID_OBJECT, TPM2B_ENCRYPTED_SECRET)

_NV_BUFFER_DEFAULT: Final = 512
_NV_BUFFER_LARGEST: Final = 2048
"""Bytes of one TPM2_NV_Read: when the TPM does not tell, and what the libraries take at most."""
_HANDLES_AT_ONCE: Final = 254
"""What one answer of the TPM holds at most (MAX_CAP_HANDLES); more follow on request."""
_AUTH_LONGEST: Final = 64
"""Bytes of a TPM2B_AUTH: the largest digest."""
_UNREADABLE: Final = frozenset(
    {
        response_codes.RC_AUTH_FAIL,
        response_codes.RC_BAD_AUTH,
        response_codes.RC_HANDLE,
        response_codes.RC_NV_AUTHORIZATION,
        response_codes.RC_NV_LOCKED,
        response_codes.RC_NV_UNINITIALIZED,
    }
)


@contextmanager
def open_tpm(
    tcti: str = DEFAULT_TCTI,
    *,
    key_type: KeyType = "auto",
    endorsement_auth: bytes = b"",
    deadline: Deadline,
) -> Iterator[Tpm]:
    """Open the TPM that `tcti`, any TCTI configuration of tpm2-tss, leads to.

    `endorsement_auth` is the endorsement hierarchy's password, empty on all but a few machines.
    Raises TpmUnavailable, TpmBusy, TpmPermissionDenied, TpmConfigurationInvalid.
    """
    if len(endorsement_auth) > _AUTH_LONGEST:
        raise TpmConfigurationInvalid(
            f"the endorsement hierarchy's password is longer than the {_AUTH_LONGEST} bytes that"
            " a TPM takes: correct it"
        )
    connection = _Connection(tcti, endorsement_auth, deadline)
    try:
        yield TpmAttestor(connection, key_type)
    finally:
        connection.close()


class _Connection:
    """`attesting.Commands` on one ESAPI context."""

    def __init__(self, tcti: str, endorsement_auth: bytes, deadline: Deadline) -> None:
        self._calls = BoundedCalls(deadline, again=_passes)
        try:
            self._esapi = self._calls.run(lambda: _open(tcti))
            self._esapi.tr_set_auth(ESYS_TR.ENDORSEMENT, endorsement_auth)
        except DeviceBusy as error:
            self._calls.close()
            raise TpmBusy(
                "another program holds the TPM device: use the kernel's resource manager"
                f" ({DEFAULT_TCTI}), which shares it"
            ) from error
        except BaseException:
            self._calls.close()
            raise

    def close(self) -> None:
        """Close the connection, unless a call was left behind in it."""
        try:
            self._calls.run(self._esapi.close, at_least=GRACE_SECONDS)
        except TpmBusy as error:
            _logger.warning("tpm connection left open: %s", error)
        self._calls.close()

    def handles(self, first: int, last: int) -> tuple[int, ...]:
        """Return the handles in use from `first` to `last`, ascending."""
        found: list[int] = []
        more = True
        while more:
            more, page = self._handles_from(found[-1] + 1 if found else first)
            found += page
            more = more and bool(page) and page[-1] < last
        return tuple(handle for handle in found if handle <= last)

    def _handles_from(self, first: int) -> tuple[bool, list[int]]:
        more, data = self._command(
            "TPM2_GetCapability",
            lambda: self._esapi.get_capability(TPM2_CAP.HANDLES, first, _HANDLES_AT_ONCE),
        )
        return bool(more), [int(handle) for handle in data.data.handles]

    @contextmanager
    def persistent(self, handle: int) -> Iterator[LoadedKey | None]:
        """Use the key at a persistent handle, None when there is none that can be used."""
        try:
            key = self._reference(handle)
        except _Unreadable:
            yield None
            return
        with self._released(key, self._esapi.tr_close):
            public, _, qualified = self._command(
                "TPM2_ReadPublic", lambda: self._esapi.read_public(key)
            )
            yield LoadedKey(handle=key, public=public.marshal(), qualified_name=bytes(qualified))

    @contextmanager
    def primary(self, template: PublicArea) -> Iterator[LoadedKey]:
        """Make a key of the endorsement hierarchy, and flush it after use."""
        area, _ = TPM2B_PUBLIC.unmarshal(template.to_tpm2b())
        handle, public, *_ = self._command(
            "TPM2_CreatePrimary",
            lambda: self._esapi.create_primary(TPM2B_SENSITIVE_CREATE(), area, ESYS_TR.ENDORSEMENT),
            special=_unsupported,
        )
        with self._released(handle, self._esapi.flush_context):
            yield LoadedKey(handle=handle, public=public.marshal(), qualified_name=b"")

    def nv_contents(self, index: int) -> bytes:
        """Return what an NV index holds; nothing when it cannot be read without a secret."""
        try:
            reference = self._reference(index)
            with self._released(reference, self._esapi.tr_close):
                return self._read_nv(reference)
        except _Unreadable as unreadable:
            _logger.warning("nv index %#x left out: %s", index, unreadable)
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
        """Return the credential that was made for these two keys."""
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

    def read_pcrs(self, selection: PcrSelection) -> Mapping[str, Mapping[int, bytes]]:
        """Return the values of as many of the selected PCRs as the TPM gives at once."""
        asked, _ = TPML_PCR_SELECTION.unmarshal(encode_selection(selection))
        _, given, digests = self._command("TPM2_PCR_Read", lambda: self._esapi.pcr_read(asked))
        values: dict[str, dict[int, bytes]] = {}
        for (bank, index), digest in zip(_pcrs_of(given), digests, strict=False):
            values.setdefault(bank, {})[index] = bytes(digest)
        return values

    def quote(self, key: LoadedKey, selection: PcrSelection, extra_data: bytes) -> RawQuote:
        """Sign the PCRs of the selection."""
        asked, _ = TPML_PCR_SELECTION.unmarshal(encode_selection(selection))
        attest, signature = self._command(
            "TPM2_Quote", lambda: self._esapi.quote(ESYS_TR(key.handle), asked, extra_data)
        )
        return RawQuote(attest=bytes(attest), signature=signature.marshal())

    @contextmanager
    def _endorsement_policy(self, template: EndorsementTemplate) -> Iterator[ESYS_TR]:
        """Fulfil the endorsement key's policy: its hierarchy's password, then the right branch."""
        session = self._command(
            "TPM2_StartAuthSession",
            lambda: self._esapi.start_auth_session(
                ESYS_TR.NONE, ESYS_TR.NONE, TPM2_SE.POLICY, None, template.public.name_alg
            ),
        )
        with self._released(session, self._esapi.flush_context):
            self._command(
                "TPM2_PolicySecret",
                lambda: self._esapi.policy_secret(ESYS_TR.ENDORSEMENT, session, expiration=0),
            )
            if template.policy_or:
                branches = TPML_DIGEST([TPM2B_DIGEST(branch) for branch in template.policy_or])
                self._command("TPM2_PolicyOR", lambda: self._esapi.policy_or(session, branches))
            yield session

    def _not_for_this_tpm(self, code: int) -> Exception | None:
        """Tell whether TPM2_ActivateCredential failed for what it was given.

        libtpms answers an RSA ciphertext that does not decrypt with TPM_RC_FAILURE, which else
        means failure mode; a TPM in that mode does nothing more.
        """
        failure = response_codes.base_code(code) == response_codes.RC_FAILURE
        if not response_codes.is_parameter_error(code) and not (failure and self._works()):
            return None
        return CredentialNotForThisTpm(
            "the challenge was made for another TPM or another attestation key, or was changed on"
            " its way: a new exchange is begun",
            detail=f"TPM2_ActivateCredential returned {code:#x}",
        )

    def _works(self) -> bool:
        try:
            self._calls.run(lambda: self._esapi.get_random(1))
        except TSS2_Exception:
            return False
        return True

    def _read_nv(self, index: ESYS_TR) -> bytes:
        """Read an index in pieces.

        Raises _Unreadable.
        """
        public, _ = self._command("TPM2_NV_ReadPublic", lambda: self._esapi.nv_read_public(index))
        auth = _nv_authority(public.nvPublic.attributes, index)
        size, at_once = int(public.nvPublic.dataSize), self._nv_buffer()

        def read_at(offset: int) -> bytes:
            piece = self._esapi.nv_read(index, min(size - offset, at_once), offset, auth)
            return bytes(piece)

        return b"".join(
            self._command("TPM2_NV_Read", partial(read_at, offset), special=_unreadable)
            for offset in range(0, size, at_once)
        )

    def _nv_buffer(self) -> int:
        """Return how many bytes of an NV index the TPM gives at once."""
        _, data = self._command(
            "TPM2_GetCapability",
            lambda: self._esapi.get_capability(TPM2_CAP.TPM_PROPERTIES, TPM2_PT_NV.BUFFER_MAX, 1),
        )
        told = [
            int(p.value) for p in data.data.tpmProperties if p.property == TPM2_PT_NV.BUFFER_MAX
        ]
        return min([*told, _NV_BUFFER_LARGEST]) if told else _NV_BUFFER_DEFAULT

    def _reference(self, handle: int) -> ESYS_TR:
        """Let the library know a persistent key or an NV index.

        Raises _Unreadable when there is none, or its hierarchy is disabled.
        """
        return self._command(
            "Esys_TR_FromTPMPublic",
            lambda: self._esapi.tr_from_tpmpublic(handle),
            special=_unreadable,
        )

    @contextmanager
    def _released(self, handle: ESYS_TR, release: Callable[[ESYS_TR], None]) -> Iterator[None]:
        """Flush a key or session afterwards, or forget a reference, even when time is up."""
        try:
            yield
        finally:
            try:
                self._calls.run(lambda: release(handle), at_least=GRACE_SECONDS)
            except (AttestationError, TSS2_Exception) as error:
                # What went wrong before says more, and a TPM that was reset has nothing to flush.
                _logger.warning("tpm handle not released: %s", error)

    def _command(
        self,
        name: str,
        call: Callable[[], _T],
        *,
        special: Callable[[int], Exception | None] = lambda _: None,
    ) -> _T:
        """Send one command; `special` says what a code means for this one in particular."""
        try:
            return self._calls.run(call)
        except TSS2_Exception as error:
            raise special(error.rc) or response_codes.error_for_code(error.rc, name) from error


class _Unreadable(Exception):
    """At this handle is nothing, or nothing that can be read without a secret."""


def _open(tcti: str) -> ESAPI:
    if not tcti:
        raise TpmConfigurationInvalid(f"the TPM setting is empty: the usual one is {DEFAULT_TCTI}")
    try:
        return ESAPI(tcti)
    except TSS2_Exception as error:
        raise open_error(tcti, error.rc) from error


def _passes(error: Exception) -> bool:
    """Tell whether the same call may succeed a moment later."""
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
            "the TPM read other PCRs than it was asked for", detail=str(error)
        ) from error
    return [(bank, index) for bank, indices in banks.items() for index in indices]


def _structure(kind: type[_Tpm2b], data: bytes) -> _Tpm2b:
    """Read a TPM2B of the challenge, and nothing else."""
    value: _Tpm2b
    try:
        value, size = kind.unmarshal(data)
    except TSS2_Exception as error:
        raise CredentialNotForThisTpm("the challenge cannot be read as a TPM's") from error
    if size != len(data):
        raise CredentialNotForThisTpm("the challenge has bytes after its end")
    return value


def _nv_authority(attributes: TPMA_NV, index: ESYS_TR) -> ESYS_TR:
    """Choose whose empty password reads an index, so that no try counts towards a lockout."""
    if not attributes & TPMA_NV.WRITTEN:
        raise _Unreadable("nothing was written")
    if attributes & TPMA_NV.AUTHREAD and attributes & TPMA_NV.NO_DA:
        return index
    if attributes & TPMA_NV.OWNERREAD:
        return ESYS_TR.OWNER
    raise _Unreadable("only a secret reads it")
