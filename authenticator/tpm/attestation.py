"""How an exchange's requests become TPM commands: which key, which policy, which values.

Implements `device.Tpm` on the few commands of `Commands`, which esapi.py gives to the TPM. Nothing
is kept from one call to the next but which templates this TPM can make.

Source: TCG EK Credential Profile 2.5, section 2.2.1 and annex B; TPM 2.0 Part 1, section 16
(Qualified Names).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from authenticator.errors import (
    AttestationKeyUnavailable,
    EndorsementKeyUnavailable,
    PcrBankNotAllocated,
    PcrSelectionUnsupported,
    PcrsUnstable,
    TpmFailed,
)
from authenticator.tpm.device import DeviceEndorsementKey, KeyType, Quote
from authenticator.tpm.nv_certificates import split_chain
from authenticator.tpm.templates import (
    ATTESTATION_TEMPLATES,
    NV_CHAIN_FIRST,
    NV_CHAIN_LAST,
    EndorsementTemplate,
    order_by_preference,
)
from common.tpm.attest import Attest
from common.tpm.constants import BANKS, HASHES, PCR_COUNT
from common.tpm.pcrs import PcrSelection
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

_NV_FIRST: Final = 0x01C00000
_TPM_RH_ENDORSEMENT: Final = bytes.fromhex("4000000b")
_QUOTE_ATTEMPTS: Final = 10
"""How often PCRs may change between being read and quoted: a boot's measurements come in bursts."""


class TemplateUnsupported(Exception):
    """The TPM has not the algorithm, size or curve of a template: the next one is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKey:
    """A key that can be used until it is released: its handle and TPM2B_PUBLIC.

    `qualified_name` says in which hierarchy a key is that somebody put there; empty for our own.
    """

    handle: int
    public: bytes
    qualified_name: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RawQuote:
    """A TPMS_ATTEST without size prefix and its TPMT_SIGNATURE."""

    attest: bytes
    signature: bytes


class TpmCommands(Protocol):
    """The TPM commands that are needed; each raises leaves of common/errors.py."""

    def handles(self, first: int, last: int) -> tuple[int, ...]:
        """Return the handles in use from `first` to `last`, ascending."""
        ...

    def persistent(self, handle: int) -> AbstractContextManager[LoadedKey | None]:
        """Use the key at a persistent handle, None when there is none that can be used."""
        ...

    def primary(self, template: PublicArea) -> AbstractContextManager[LoadedKey]:
        """Make the key of the endorsement hierarchy and flush it after use.

        Raises TemplateUnsupported.
        """
        ...

    def nv_contents(self, index: int) -> bytes:
        """Return what an NV index holds; nothing when it cannot be read without a secret."""
        ...

    def activate(
        self,
        endorsement: LoadedKey,
        template: EndorsementTemplate,
        attestation: LoadedKey,
        *,
        credential_blob: bytes,
        encrypted_secret: bytes,
    ) -> bytes:
        """Return the credential; raises CredentialNotForThisTpm."""
        ...

    def read_pcrs(self, selection: PcrSelection) -> Mapping[str, Mapping[int, bytes]]:
        """Return the values of some of the selected PCRs; of none when none is allocated."""
        ...

    def quote(self, key: LoadedKey, selection: PcrSelection, extra_data: bytes) -> RawQuote:
        """Sign the PCRs of the selection."""
        ...


class TpmAttestor:
    """`device.Tpm` on a TPM's commands."""

    def __init__(self, commands: TpmCommands, key_type: KeyType) -> None:
        self._commands = commands
        self._key_type = key_type
        self._templates: tuple[EndorsementTemplate, ...] = ()
        self._attestation_templates: tuple[PublicArea, ...] = ATTESTATION_TEMPLATES

    def endorsement_key(self) -> DeviceEndorsementKey:
        """See `device.Tpm`."""
        with self._endorsement_key() as (template, key):
            public = key.public
        found = self._commands.handles(_NV_FIRST, NV_CHAIN_LAST)
        own = (i for i in found if i == template.certificate_index)
        chain = (i for i in found if i >= NV_CHAIN_FIRST)
        leaf = tuple(filter(None, map(self._commands.nv_contents, own)))
        return DeviceEndorsementKey(
            public=public,
            certificates=leaf + split_chain([self._commands.nv_contents(i) for i in chain]),
        )

    def attestation_key(self) -> bytes:
        """See `device.Tpm`."""
        with self._attestation_key() as key:
            return key.public

    def activate_credential(self, credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        """See `device.Tpm`."""
        with self._endorsement_key() as (template, endorsement), self._attestation_key() as key:
            return self._commands.activate(
                endorsement,
                template,
                key,
                credential_blob=credential_blob,
                encrypted_secret=encrypted_secret,
            )

    def quote(self, selection: Mapping[str, Sequence[int]], extra_data: bytes) -> Quote:
        """See `device.Tpm`."""
        wanted = _checked(selection)
        with self._attestation_key() as key:
            for _ in range(_QUOTE_ATTEMPTS):
                pcrs = self._pcrs(wanted)
                quoted = self._commands.quote(key, wanted, extra_data)
                if _digest(pcrs) == _parsed(quoted.attest).pcr_digest:
                    return Quote(attest=quoted.attest, signature=quoted.signature, pcrs=pcrs)
        raise PcrsUnstable(
            "PCRs change faster than they can be read and quoted: the policy of this cluster asks"
            " for PCRs that a running system extends"
        )

    @contextmanager
    def _endorsement_key(self) -> Iterator[tuple[EndorsementTemplate, LoadedKey]]:
        """Use the first template's key that the TPM has or can make."""
        if not self._templates:
            indices = frozenset(self._commands.handles(_NV_FIRST, NV_CHAIN_FIRST - 1))
            self._templates = order_by_preference(self._key_type, indices)
        while self._templates:
            template = self._templates[0]
            try:
                with self._kept_or_made(template) as key:
                    yield template, key
                    return
            except TemplateUnsupported:
                self._templates = self._templates[1:]
        raise EndorsementKeyUnavailable(
            "the TPM can make no endorsement key of the configured type: set the key type to auto"
        )

    @contextmanager
    def _kept_or_made(self, template: EndorsementTemplate) -> Iterator[LoadedKey]:
        """Use the persistent copy of the template's key if there is one, else make the key."""
        with self._commands.persistent(template.persistent_handle) as key:
            if key and template.matches(key.public) and key.qualified_name == _primary(key.public):
                yield key
                return
        with self._commands.primary(template.public) as key:
            yield key

    @contextmanager
    def _attestation_key(self) -> Iterator[LoadedKey]:
        """Make the attestation key by the first template that the TPM can make."""
        while self._attestation_templates:
            try:
                with self._commands.primary(self._attestation_templates[0]) as key:
                    yield key
                    return
            except TemplateUnsupported:
                self._attestation_templates = self._attestation_templates[1:]
        raise AttestationKeyUnavailable(
            "the TPM can make neither an ECC P-256 nor an RSA 2048 signing key: it cannot attest"
        )

    def _pcrs(self, wanted: PcrSelection) -> Mapping[str, Mapping[int, bytes]]:
        """Read every wanted PCR; a TPM gives eight or so at a time."""
        values: dict[str, dict[int, bytes]] = {bank: {} for bank in wanted}
        while missing := _missing(wanted, values):
            read = self._commands.read_pcrs(missing)
            for bank, known in values.items():
                known.update(read.get(bank, {}))
            if _missing(wanted, values) == missing:
                raise PcrBankNotAllocated(
                    "the cluster's policy asks for PCRs of a bank that the TPM has not allocated"
                    f" ({', '.join(missing)}): allocate it in the firmware's settings or with"
                    " tpm2_pcrallocate, or have the policy changed"
                )
        return {bank: {i: values[bank][i] for i in indices} for bank, indices in wanted.items()}


def _checked(selection: Mapping[str, Sequence[int]]) -> PcrSelection:
    """Bring the selection into the one order in which it is quoted.

    Raises PcrSelectionUnsupported.
    """
    known = all(bank in BANKS for bank in selection)
    indices = [index for chosen in selection.values() for index in chosen]
    if not known or not all(0 <= index < PCR_COUNT for index in indices):
        raise PcrSelectionUnsupported(
            "the challenge asks for a bank or a PCR that this program does not know: update it"
        )
    if not selection or not all(selection.values()):
        raise PcrSelectionUnsupported("the challenge asks for no PCRs: the signer is at fault")
    return {bank: tuple(sorted(set(selection[bank]))) for bank in BANKS if bank in selection}


def _missing(wanted: PcrSelection, values: Mapping[str, Mapping[int, bytes]]) -> PcrSelection:
    rest = {b: tuple(i for i in indices if i not in values[b]) for b, indices in wanted.items()}
    return {bank: indices for bank, indices in rest.items() if indices}


def _digest(pcrs: Mapping[str, Mapping[int, bytes]]) -> bytes:
    """Return the pcrDigest; its hash is the signing scheme's, SHA-256 in both templates."""
    values = (pcrs[bank][index] for bank in pcrs for index in pcrs[bank])
    return hashlib.sha256(b"".join(values)).digest()


def _parsed(attest: bytes) -> Attest:
    try:
        return Attest.parse(attest)
    except StructureMalformed as error:
        raise TpmFailed("the TPM made a quote that cannot be read", detail=str(error)) from error


def _primary(public: bytes) -> bytes:
    """Return the Qualified Name that a primary key of the endorsement hierarchy has.

    A key of the owner's at an endorsement key's handle has another, and dies with TPM2_Clear.
    """
    key = PublicArea.from_tpm2b(public)
    name_alg = HASHES[key.name_alg]
    digest = hashlib.new(name_alg, _TPM_RH_ENDORSEMENT + key.name(), usedforsecurity=True).digest()
    return key.name()[:2] + digest
