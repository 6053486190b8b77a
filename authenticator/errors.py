"""What the node alone can raise; the families are those of common/errors.py."""

from common.errors import Fatal, StartOver, Unavailable

# The node's TPM


class TpmUnavailable(Unavailable):
    """There is no TPM to talk to: no device, no driver, nobody at the other end."""


class TpmBusy(Unavailable):
    """The TPM asked to be tried again until there was no time left."""


class TpmLockedOut(Unavailable):
    """The TPM refuses authorisations for a while, after too many failed ones."""


class TpmFailed(Unavailable):
    """The TPM, or the way to it, answered with an error that has no better name here."""


class TpmOutOfMemory(Unavailable):
    """Others fill the TPM's slots for keys or sessions."""


class PcrsUnstable(Unavailable):
    """PCRs changed each time between being read and being quoted."""


class CredentialNotForThisTpm(StartOver):
    """The challenge was made for another endorsement or attestation key, or changed on the way."""


class TpmPermissionDenied(Fatal):
    """This user may not open the TPM device."""


class TpmConfigurationInvalid(Fatal):
    """The TPM setting is no TCTI configuration that the TSS2 libraries know."""


class TpmInFailureMode(Fatal):
    """The TPM's self test failed: it does nothing but say so."""


class EndorsementAuthorizationRequired(Fatal):
    """The endorsement hierarchy has a password, and not the one that is configured."""


class EndorsementHierarchyDisabled(Fatal):
    """Firmware or an operator has switched the endorsement hierarchy off."""


class EndorsementKeyUnavailable(Fatal):
    """The TPM can make no endorsement key of the type that is asked for."""


class AttestationKeyUnavailable(Fatal):
    """The TPM can make neither an ECC P-256 nor an RSA 2048 attestation key."""


class PcrBankNotAllocated(Fatal):
    """The TPM keeps no PCRs in a bank that is to be quoted."""


class PcrSelectionUnsupported(Fatal):
    """The challenge asks for a bank or a PCR that this version does not know."""


# What a node meets: its API server


class ApiServerUntrusted(Unavailable):
    """The API server's certificate does not lead to the exec info's CA, or bears another name."""


class ApiResponseMalformed(Unavailable):
    """The API server, or what stands in its place, answered with something that is not its API."""


class Unauthorized(Fatal):
    """The API server does not accept the credential (401)."""


class Forbidden(Fatal):
    """The API server accepts the credential but not what it asks for (403)."""


class Invalid(Fatal):
    """The API server finds the request itself invalid."""


# What a node meets: its platform


class ProviderUnavailable(Unavailable):
    """The platform does not tell who this machine is: no answer in time, or not now."""


class ProviderAnswerInvalid(Unavailable):
    """What answered in the platform's place told nothing that could be this machine's identity."""


# What a node meets: its exchange


class DeadlinePassed(Unavailable):
    """The time of this call is used up; the exchange stays on disk, and is resumed."""


class CoolingDown(Unavailable):
    """The last exchange failed, and the next one does not begin yet."""


class ExchangeExpired(StartOver):
    """The exchange is too old to go on, or was begun before a reboot or under other settings."""


class OfferUnanswered(StartOver):
    """Nobody answered the offer for so long that it is replaced."""


class RequestDeleted(StartOver):
    """A CSR of the exchange was deleted by somebody."""


class RequestNameConflict(StartOver):
    """A CSR of the exchange's name exists, and is not ours."""


class RequestDenied(StartOver):
    """The CSR was denied."""


class RequestFailed(StartOver):
    """The CSR was set to Failed."""


class ClockSkewTooLarge(StartOver):
    """Node and signer differ by more than a day: no certificate would be valid here."""


class VersionRefused(StartOver):
    """The signer does not take the version that this program speaks."""


class CertificateMismatch(StartOver):
    """The certificate that came back is not the one that was asked for."""


class CertificateNotAccepted(StartOver):
    """The API server does not take the new certificate for the node's."""


# What a node meets: itself


class ConfigurationInvalid(Fatal):
    """Flags or settings are not understood; the message tells all of it at once."""


class ExecInfoInvalid(Fatal):
    """KUBERNETES_EXEC_INFO is missing, not understood, or without what is needed."""


class KubeconfigUnusable(Fatal):
    """A kubeconfig on the node is missing, cannot be read, or does not lead anywhere."""


class KubeconfigNotOurs(Fatal):
    """The kubelet's kubeconfig has another credential, which is not given up unasked."""


class KubeconfigUnwritable(Unavailable):
    """The kubelet's kubeconfig cannot be written: no such folder, full, read-only or broken."""


class ClientCertificateMissing(Unavailable):
    """The node has no client certificate yet to ask for a serving certificate with."""


class BootstrapCredentialUnusable(Fatal):
    """There is no bootstrap kubeconfig, or none with a token or certificate of its own."""


class StateDirectoryUnsafe(Fatal):
    """Others may write to the state folder, or it is not a folder of this user."""


class StateDirectoryUnwritable(Unavailable):
    """The state folder cannot be written: full, read-only or broken."""


class StateCorrupted(StartOver):
    """A file in the state folder is not whole, or not as this program wrote it."""
