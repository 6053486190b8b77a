"""The endorsement certificate names the machine (E2).

Source: docs/decisions/0053-certificates-that-name-the-machine.md and 0085.
"""

from signer.errors import EndorsementCertificateUnnamed
from signer.kinds.endorsement_key import TrustBasis
from signer.policy.policy import TrustMode
from signer.verify.context import VerificationContext
from signer.verify.grounds.ground import Ground, PresentedKeys, endorsement_key_ground
from signer.verify.machines.machine import VerifiedMachine
from signer.verify.x509.machine_names import verify_machine_name


def find(
    keys: PresentedKeys, machine: VerifiedMachine, context: VerificationContext
) -> Ground | None:
    """Return the ground if a valid certificate names the Machine.

    Counts if the policy lists `certificateNames`, with the trust `Certified`.

    Raises:
        EndorsementCertificateUnnamed: the policy accepts only certificates that name the Machine.
        Denied: the certificate fails, or names another machine.

    """
    rules = context.policy.endorsement_key.certificate_names
    if context.policy.endorsement_key.trust is not TrustMode.CERTIFIED:
        return None
    if not rules.gce_projects | rules.domain_uuid_schemes:
        return None
    if verify_machine_name(keys.certificate, machine.machine.provider_id, rules):
        return endorsement_key_ground(keys, TrustBasis.CERTIFICATE_NAME)
    if rules.is_name_required:
        raise EndorsementCertificateUnnamed(
            "the endorsement certificate names no machine: register the key, or set"
            " certificateNames.unnamed to Accept"
        )
    return None
