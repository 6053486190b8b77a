"""Implements `device.Tpm` with the few TPM commands of `esapi.TpmConnection`.

Decides which key, policy and values a command gets. Between calls it remembers only which templates
this TPM supports.

Source: TCG EK Credential Profile 2.5, section 2.2.1 and annex B; TPM 2.0 Part 1, section 16
(Qualified Names).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from authenticator.errors import (
    AttestationKeyUnavailable,
    EndorsementKeyUnavailable,
    PcrBankNotAllocated,
    PcrSelectionUnsupported,
    PcrsUnstable,
    TpmBusy,
    TpmFailed,
)
from authenticator.tpm.device import (
    DeviceAttestationKey,
    DeviceEndorsementKey,
    KeyType,
    Quote,
)
from authenticator.tpm.loaded_key import LoadedKey, TemplateUnsupported
from authenticator.tpm.nv_certificates import certificate_der, split_chain
from authenticator.tpm.templates import (
    ATTESTATION_TEMPLATES,
    CERTIFIED_ATTESTATION_KEY,
    CERTIFIED_ATTESTATION_KEY_INDEX,
    NV_CHAIN_FIRST,
    NV_CHAIN_LAST,
    EndorsementTemplate,
    order_by_preference,
)
from common.evidence import Statement
from common.tpm.attest import Attest
from common.tpm.constants import BANKS, HASHES, PCR_COUNT
from common.tpm.pcrs import PcrSelection
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

if TYPE_CHECKING:  # it imports tpm2_pytss
    from authenticator.tpm.esapi import TpmConnection

_NV_FIRST: Final = 0x01C00000
_TPM_RH_ENDORSEMENT: Final = bytes.fromhex("4000000b")
_QUOTE_ATTEMPTS: Final = 10
"""Attempts to read and quote PCRs without a change between: a boot measures in bursts."""


class TpmAttestor:
    """`device.Tpm` on a TPM's commands."""

    def __init__(
        self, commands: "TpmConnection", key_type: KeyType, *, prefer_certified: bool = False
    ) -> None:
        """With `prefer_certified`, use the attestation key that a platform certified, if any."""
        self._commands = commands
        self._key_type = key_type
        self._prefer_certified = prefer_certified
        self._templates: tuple[EndorsementTemplate, ...] = ()
        self._attestation_templates: tuple[PublicArea, ...] = ATTESTATION_TEMPLATES

    def endorsement_key(self) -> DeviceEndorsementKey:
        """See `device.Tpm`."""
        with self._endorsement_key() as (template, key):
            public = key.public
        indices = self._commands.handles(_NV_FIRST, NV_CHAIN_LAST)
        of_key = (i for i in indices if i == template.certificate_index)
        chain = (i for i in indices if i >= NV_CHAIN_FIRST)
        leaf = tuple(filter(None, map(self._commands.nv_contents, of_key)))
        return DeviceEndorsementKey(
            public=public,
            certificates=leaf + split_chain([self._commands.nv_contents(i) for i in chain]),
        )

    def attestation_key(self) -> DeviceAttestationKey:
        """See `device.Tpm`."""
        with self._attestation_key() as (key, certificate):
            creation = self._endorsement_creation(key) if certificate is not None else None
            return DeviceAttestationKey(
                public=key.public, certificate=certificate, endorsement_creation=creation
            )

    def activate_credential(self, credential_blob: bytes, encrypted_secret: bytes) -> bytes:
        """See `device.Tpm`."""
        with (
            self._endorsement_key() as (template, endorsement),
            self._attestation_key() as (key, _),
        ):
            return self._commands.activate(
                endorsement,
                template,
                key,
                credential_blob=credential_blob,
                encrypted_secret=encrypted_secret,
            )

    def quote(self, selection: Mapping[str, Sequence[int]], extra_data: bytes) -> Quote:
        """See `device.Tpm`."""
        pcr_selection = _normalize(selection)
        with self._attestation_key() as (key, _):
            for _ in range(_QUOTE_ATTEMPTS):
                pcrs = self._read_pcrs(pcr_selection)
                quote = self._commands.quote(key, pcr_selection, extra_data)
                if _pcr_digest(pcrs) == _parse_attest(quote.attest).pcr_digest:
                    return Quote(attest=quote.attest, signature=quote.signature, pcrs=pcrs)
        raise PcrsUnstable(
            "PCRs change faster than they can be read and quoted: ask the operator of the signer to"
            " remove PCRs that a running system extends from the policy"
        )

    @contextmanager
    def _endorsement_key(self) -> Iterator[tuple[EndorsementTemplate, LoadedKey]]:
        """Use the key of the first template that the TPM supports."""
        if not self._templates:
            indices = frozenset(self._commands.handles(_NV_FIRST, NV_CHAIN_FIRST - 1))
            self._templates = order_by_preference(self._key_type, indices)
        while self._templates:
            template = self._templates[0]
            try:
                with self._persistent_or_primary(template) as key:
                    yield template, key
                    return
            except TemplateUnsupported:
                self._templates = self._templates[1:]
        raise EndorsementKeyUnavailable(
            "the TPM cannot make an endorsement key of the configured type: set endorsementKeyType"
            " to auto"
        )

    @contextmanager
    def _persistent_or_primary(self, template: EndorsementTemplate) -> Iterator[LoadedKey]:
        """Use the persistent copy of the key of the template if there is one, else make the key."""
        with self._commands.persistent(template.persistent_handle) as key:
            if (
                key
                and template.matches(key.public)
                and key.qualified_name == _qualified_name(key.public)
            ):
                yield key
                return
        with ExitStack() as stack:
            try:
                key = stack.enter_context(self._commands.primary(template.public))
            except TpmBusy as error:
                raise TpmBusy(
                    f"{error.message}. Some TPMs need longer than timeoutSeconds for this key"
                    f" (endorsement key {template.name}), at each attempt: make it persistent once,"
                    f" at {template.persistent_handle:#x} (docs/node.md, The TPM), or set"
                    " timeoutSeconds to 900",
                    detail=error.detail,
                ) from error
            yield key

    @contextmanager
    def _attestation_key(self) -> Iterator[tuple[LoadedKey, bytes | None]]:
        """Use the attestation key, and return its certificate if it has one."""
        certificate = self._certificate()
        if certificate:
            with self._commands.persistent(CERTIFIED_ATTESTATION_KEY) as key:
                if key is not None and _certifies(certificate, key.public):
                    yield key, certificate
                    return
        with self._own_attestation_key() as key:
            yield key, None

    def _endorsement_creation(self, key: LoadedKey) -> Statement:
        """Let the certified key state that its TPM made the endorsement key."""
        with self._endorsement_key() as (template, _):
            pass
        return self._commands.certify_creation(template.public, key)

    def _certificate(self) -> bytes:
        """Return the certificate of the platform for an attestation key; empty without one."""
        index = CERTIFIED_ATTESTATION_KEY_INDEX
        if not self._prefer_certified or index not in self._commands.handles(index, index):
            return b""
        return self._commands.nv_contents(index)

    @contextmanager
    def _own_attestation_key(self) -> Iterator[LoadedKey]:
        """Make the attestation key from the first template that the TPM supports."""
        while self._attestation_templates:
            try:
                with self._commands.primary(self._attestation_templates[0]) as key:
                    yield key
                    return
            except TemplateUnsupported:
                self._attestation_templates = self._attestation_templates[1:]
        raise AttestationKeyUnavailable(
            "the TPM supports neither ECC P-256 nor RSA 2048 signing keys, so it cannot attest"
        )

    def _read_pcrs(self, selection: PcrSelection) -> Mapping[str, Mapping[int, bytes]]:
        """Read every selected PCR; a TPM returns eight or so at a time."""
        values: dict[str, dict[int, bytes]] = {bank: {} for bank in selection}
        while missing := _missing(selection, values):
            read = self._commands.read_pcrs(missing)
            for bank, known in values.items():
                known.update(read.get(bank, {}))
            if _missing(selection, values) == missing:
                raise PcrBankNotAllocated(
                    "the policy of the cluster requires PCRs of a bank that the TPM has not"
                    f" allocated ({', '.join(missing)}): allocate it in the firmware settings or"
                    " with tpm2_pcrallocate, or ask the operator of the signer to change the policy"
                )
        return {bank: {i: values[bank][i] for i in indices} for bank, indices in selection.items()}


def _certifies(certificate: bytes, public: bytes) -> bool:
    """Return whether the certificate has the RSA modulus of this key, as far as a node can tell."""
    try:
        unique = PublicArea.from_tpm2b(public).unique
    except StructureMalformed:
        return False
    return isinstance(unique, bytes) and bool(unique) and unique in certificate_der(certificate)


def _normalize(selection: Mapping[str, Sequence[int]]) -> PcrSelection:
    """Return the selection in the order in which it is quoted.

    Raises `PcrSelectionUnsupported`.
    """
    known = all(bank in BANKS for bank in selection)
    indices = [index for chosen in selection.values() for index in chosen]
    if not known or not all(0 <= index < PCR_COUNT for index in indices):
        raise PcrSelectionUnsupported(
            "the challenge names a bank or a PCR that this program does not know: update it"
        )
    if not selection or not all(selection.values()):
        raise PcrSelectionUnsupported(
            "the challenge names no PCRs: report this to the operator of the signer"
        )
    return {bank: tuple(sorted(set(selection[bank]))) for bank in BANKS if bank in selection}


def _missing(selection: PcrSelection, values: Mapping[str, Mapping[int, bytes]]) -> PcrSelection:
    missing = {
        bank: tuple(index for index in indices if index not in values[bank])
        for bank, indices in selection.items()
    }
    return {bank: indices for bank, indices in missing.items() if indices}


def _pcr_digest(pcrs: Mapping[str, Mapping[int, bytes]]) -> bytes:
    """Return the pcrDigest. Its hash is that of the signing scheme: SHA-256 in both templates."""
    values = (pcrs[bank][index] for bank in pcrs for index in pcrs[bank])
    return hashlib.sha256(b"".join(values)).digest()


def _parse_attest(attest: bytes) -> Attest:
    try:
        return Attest.parse(attest)
    except StructureMalformed as error:
        raise TpmFailed(
            "the TPM returned a quote that cannot be read", detail=str(error)
        ) from error


def _qualified_name(public: bytes) -> bytes:
    """Return the Qualified Name of the key as a primary key of the endorsement hierarchy.

    A key of the owner hierarchy at the handle of an endorsement key has another Qualified Name, and
    TPM2_Clear destroys it.
    """
    key = PublicArea.from_tpm2b(public)
    name_alg = HASHES[key.name_alg]
    digest = hashlib.new(name_alg, _TPM_RH_ENDORSEMENT + key.name(), usedforsecurity=True).digest()
    return key.name()[:2] + digest
