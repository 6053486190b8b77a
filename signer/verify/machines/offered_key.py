"""Describes an unregistered endorsement key, for an operator who may approve it.

It is no check. The requester chose every byte of the offer, and the offer does not prove that the
requester has the TPM: an operator compares the digest with that of the machine's key. Source:
docs/decisions/0033-unknown-tpms-as-requests.md.
"""

from typing import Final

from common.errors import AttestationError
from signer.kinds.csr import Csr
from signer.kinds.key_request import MAX_NAME, OfferedCertificate, OfferedKey
from signer.kinds.machine import Machine
from signer.verify.attestation.endorsement_key import EndorsementKey
from signer.verify.context import VerificationContext
from signer.verify.requests.parse import ParsedOffer
from signer.verify.requests.request import BOOTSTRAP_USER_PREFIX, ENTRY_USER
from signer.verify.x509.endorsement_certificate import (
    find_endorsement_certificate,
    verify_endorsement_certificate,
)
from signer.verify.x509.fields import CertificateFields
from signer.verify.x509.machine_names import read_machine_name
from signer.verify.x509.tpm_identity import TpmIdentity, read_tpm_identity

TRUSTED: Final = "Trusted"
"""`OfferedCertificate.status`: an endorsement certificate chains to a root of the policy."""


def may_offer_key(csr: Csr, machine: Machine) -> bool:
    """Return whether the requester's key may be shown for a Machine.

    Where the Machine's bootstrap configuration owns a token, the holder of another token may not
    name keys for this Machine. The entry credential is for nodes whose key is known.
    """
    token = machine.bootstrap_token_id
    return (
        not machine.is_pool_member
        and bool(machine.name)
        and csr.username != ENTRY_USER
        and (
            token is None
            or not csr.username.startswith(BOOTSTRAP_USER_PREFIX)
            or csr.username == BOOTSTRAP_USER_PREFIX + token
        )
    )


def describe_offered_key(
    csr: Csr, offer: ParsedOffer, key: EndorsementKey, context: VerificationContext
) -> OfferedKey:
    """Return the key with what its certificate says, and whether the certificate is trusted."""
    certificates = offer.evidence.ek_certificates
    try:
        certificate: CertificateFields | None = verify_endorsement_certificate(
            certificates,
            key.public_key,
            anchors=context.anchors,
            now=context.now,
            allow_without_usage=context.policy.endorsement_key.allow_certificates_without_usage,
        )
        verdict = TRUSTED
    except AttestationError as error:
        certificate = find_endorsement_certificate(certificates, key.public_key)
        verdict = error.reason
    identity = TpmIdentity() if certificate is None else read_tpm_identity(certificate)
    certified_for = "" if certificate is None else read_machine_name(certificate)
    return OfferedKey(
        sha256=key.name,
        node_name=offer.request.node_name,
        requester=csr.username[:MAX_NAME],
        first_seen=context.now,
        certificate=OfferedCertificate(
            status=verdict,
            manufacturer=identity.manufacturer,
            model=identity.model,
            firmware=identity.firmware,
            certified_for=certified_for[:MAX_NAME],
        ),
    )
