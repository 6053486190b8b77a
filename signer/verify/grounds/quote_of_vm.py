"""The quote names the Machine's virtual machine, by an attestation key of its platform (E2).

Azure certifies the attestation key that it makes for a virtual machine, and gives the endorsement
key no certificate. The certificate names no machine. The firmware of the virtual machine measures
its UUID into PCR 6, before anything of the guest runs. So a quote of PCR 6 by the certified key
names the virtual machine. Nothing certifies the endorsement key, which could be in software: the
certified key has to state that its TPM made it. The certified key vouches for as many endorsement
keys as its TPM can make, so it is the trusted one.

Source: microsoft/mu_msvm, MsvmPkg/VmMeasurementDxe/VmMeasurementDxe.c;
docs/decisions/0068-certified-attestation-keys.md and 0084.
"""

import hashlib
from typing import Final

from common.evidence import Statement
from common.tpm.attest import created_object
from common.tpm.reader import StructureMalformed
from signer.errors import (
    EndorsementKeyUnproved,
    QuoteOfOtherMachine,
    QuoteSignatureInvalid,
    SignatureMalformed,
)
from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import MACHINE_PCR, MACHINE_PCR_BANK
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey
from signer.verify.attestation.quote import verify_statement
from signer.verify.attestation.quoted_pcrs import Pcrs
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys
from signer.verify.grounds.platform_answer import ask
from signer.verify.machines.attestation_certificate import verify_attestation_certificate
from signer.verify.machines.machine import VerifiedMachine

_ARCHITECTURES: Final = (
    None,
    b'{"MachineArchitecture": "X64"}',
    b'{"MachineArchitecture": "AARCH64"}',
)
"""What newer firmware measures after the UUID; older firmware measures nothing there."""
_SEPARATOR: Final = bytes(4)


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if the quote names the Machine's VM; on an offer, if such a quote can come.

    Counts if the policy names authorities for attestation keys. The VM ID is that of the annotation
    or of the platform.

    Raises:
        Denied: the certificate fails, the certified key does not state that its TPM made the
            endorsement key, or the quote names another virtual machine.
        PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed, PlatformAnswerPending:
            the platform may know the VM ID, and has not answered.

    """
    if not context.policy.attestation_key.certificate_authorities:
        return None
    vm_id = ask(keys, machine, context).vm_id
    if vm_id is None:
        return None
    if verify_attestation_certificate(keys.attestation, keys.evidence, context) is None:
        return None
    creation = keys.evidence.ek_creation
    _require_created_endorsement_key(keys.attestation, keys.endorsement, creation)
    if keys.pcrs is not None:
        require_quote_of_vm(keys.pcrs, vm_id)
    return Ground(basis=TrustBasis.CERTIFICATE_NAME, key=keys.attestation, names=keys.names)


def _require_created_endorsement_key(
    key: AttestationKey, endorsement_key: EndorsementKey, creation: Statement | None
) -> None:
    """Require that the TPM of the certified attestation key made the endorsement key (E2).

    Else it could be a key in software, which activation does not notice. The Name covers the
    attributes of the template (E1), so the key cannot leave its TPM. Raises
    `EndorsementKeyUnproved`.
    """
    if _created_name(key, creation) != endorsement_key.tpm_name:
        raise EndorsementKeyUnproved(
            "the certified attestation key does not say that its TPM made the endorsement key"
        )


def _created_name(key: AttestationKey, creation: Statement | None) -> bytes | None:
    if creation is None:
        return None
    try:
        verify_statement(creation.attest, creation.signature, key)
        return created_object(creation.attest)
    except (StructureMalformed, SignatureMalformed, QuoteSignatureInvalid):
        return None


def require_quote_of_vm(pcrs: Pcrs, vm_id: str) -> None:
    """Require that PCR 6 names the virtual machine, and has nothing else (E2).

    Raises `QuoteOfOtherMachine`.
    """
    value = pcrs[MACHINE_PCR_BANK][MACHINE_PCR]
    if all(value != _pcr_of_vm(vm_id, architecture) for architecture in _ARCHITECTURES):
        raise QuoteOfOtherMachine(
            f"the quoted PCR {MACHINE_PCR} does not name the virtual machine of this Machine",
            detail=f"{MACHINE_PCR_BANK}:{MACHINE_PCR} is {value.hex()}, and the VM ID is {vm_id}",
        )


def _pcr_of_vm(vm_id: str, architecture: bytes | None) -> bytes:
    value = bytes(hashlib.sha256().digest_size)
    for measured in (f"UUID: {vm_id.upper()}".encode(), architecture, _SEPARATOR):
        if measured is not None:
            value = hashlib.sha256(value + hashlib.sha256(measured).digest()).digest()
    return value
