"""Errors that only the node raises; the families are those of common/errors.py."""

from common.errors import Fatal, StartOver, Unavailable

# The node's TPM


class TpmUnavailable(Unavailable):
    """No TPM can be reached: there is no device, no driver, or no listener."""


class TpmBusy(Unavailable):
    """The TPM was busy until the deadline."""


class TpmLockedOut(Unavailable):
    """The TPM refuses authorizations for a while, after too many failed ones."""


class TpmFailed(Unavailable):
    """The TPM, or a layer on the way to it, returned an error that has no specific reason."""


class TpmOutOfMemory(Unavailable):
    """Other programs fill the TPM's slots for keys or sessions."""


class PcrsUnstable(Unavailable):
    """PCRs changed between reading and quoting, at every attempt."""


class CredentialNotForThisTpm(StartOver):
    """The challenge is for another endorsement or attestation key, or was changed on the way."""


class TpmPermissionDenied(Fatal):
    """This user may not open the TPM device."""


class TpmConfigurationInvalid(Fatal):
    """The TSS2 libraries do not know the TCTI configuration of the setting."""


class TpmInFailureMode(Fatal):
    """The TPM's self-test failed: it refuses all other commands."""


class EndorsementAuthorizationRequired(Fatal):
    """The endorsement hierarchy has a password that is not the configured one."""


class EndorsementHierarchyDisabled(Fatal):
    """Firmware or an operator has disabled the endorsement hierarchy."""


class EndorsementKeyUnavailable(Fatal):
    """The TPM cannot create an endorsement key of the requested type."""


class AttestationKeyUnavailable(Fatal):
    """The TPM can create neither an ECC P-256 nor an RSA 2048 attestation key."""


class PcrBankNotAllocated(Fatal):
    """The TPM has no PCRs in a bank of the challenge's selection."""


class PcrSignaturesUnusable(Fatal):
    """The file with signatures of PCR values cannot be read, or has too many for an answer."""


class PcrSelectionUnsupported(Fatal):
    """The challenge selects a bank or a PCR that this version does not support."""


# API server


class ApiServerUntrusted(Unavailable):
    """The API server's certificate does not lead to the exec info's CA, or has another name."""


class ApiResponseMalformed(Unavailable):
    """The API server, or a server in its place, returned something that is not its API."""


class Unauthorized(Fatal):
    """The API server does not accept the credential (401)."""


class Forbidden(Fatal):
    """The API server accepts the credential but forbids the request (403)."""


class Invalid(Fatal):
    """The API server rejects the request as invalid (400, 422)."""


# Platform and provider


class ProviderUnavailable(Unavailable):
    """The platform's metadata service does not answer, or not in time."""


class ProviderAnswerInvalid(Unavailable):
    """The answer of the metadata service is not a valid identity."""


# Exchange


class DeadlinePassed(Unavailable):
    """The time of this call is used up; the exchange stays on disk and is resumed."""


class CoolingDown(Unavailable):
    """The last exchange failed, and the pause before the next one is not over."""


class ExchangeExpired(StartOver):
    """The exchange is too old to continue."""


class OfferUnanswered(StartOver):
    """The offer had no challenge after ten minutes."""


class RequestDeleted(StartOver):
    """A CSR of the exchange was deleted."""


class RequestNameConflict(StartOver):
    """A CSR of the exchange's name exists, with other content."""


class RequestDenied(StartOver):
    """The CSR was denied."""


class RequestFailed(StartOver):
    """The CSR was set to Failed."""


class ClockSkewTooLarge(StartOver):
    """The clock of the node or of the signer is wrong: no new certificate would be valid here."""


class VersionRefused(StartOver):
    """The signer does not support the protocol version of this program."""


class CertificateMismatch(StartOver):
    """The issued certificate does not match the request."""


class CertificateNotYetValid(Unavailable):
    """The new certificate begins in the future of the API server's clock."""


class CertificateNotAccepted(StartOver):
    """The API server does not know the new certificate as the node's."""


# The node itself: configuration, state and program


class ConfigurationInvalid(Fatal):
    """Flags or settings are invalid; the message lists all problems."""


class ExecInfoInvalid(Fatal):
    """KUBERNETES_EXEC_INFO is missing, invalid, or incomplete."""


class KubeconfigUnusable(Fatal):
    """A kubeconfig on the node is missing, unreadable, or incomplete."""


class KubeconfigNotOurs(Fatal):
    """The kubelet's kubeconfig has another credential, which only `join --replace` replaces."""


class KubeconfigUnwritable(Unavailable):
    """The kubelet's kubeconfig cannot be written: no directory, or a full or read-only disk."""


class KubeletUnitUnchangeable(Unavailable):
    """systemd, or a file of the kubelet's unit, cannot be changed."""


class KubeletNotBootstrapped(Unavailable):
    """After `leave`, the kubelet got no certificate of its own in time."""


class ClientCertificateMissing(Unavailable):
    """The node has no valid client certificate, which a serving certificate needs."""


class ClientCertificateUnusable(Fatal):
    """A client certificate and its key cannot be read, or do not belong together."""


class BootstrapCredentialUnusable(Fatal):
    """There is no bootstrap kubeconfig, or its user has no token or client certificate."""


class ProgramIncomplete(Fatal):
    """Python cannot import a module: its version is not supported, or a library is missing."""


class StateDirectoryUnsafe(Fatal):
    """The state directory belongs to another user, or is a link."""


class StateDirectoryUnwritable(Unavailable):
    """The state directory cannot be written: the disk is full, read-only or broken."""


class StateCorrupted(StartOver):
    """A file in the state directory is damaged, or another user could have written it."""
