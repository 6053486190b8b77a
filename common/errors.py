"""One tree of everything that can go wrong in an exchange.

A family (`Denied`, `Waiting`, `Ignored`, `Unavailable`, `StartOver`, `Fatal`) fixes what happens
next. A leaf is one way to fail: its class name is the `reason`, which goes unchanged into the CSR
condition, the Event, the audit record, the metric label and the node's report, so renaming a leaf
breaks its users. `check` is the number of the check in docs/protocol.md section 5.

Messages are shown to the node and to every reader of CSRs: they hold no secret, no expected value
and no other cluster's names. `detail` goes to the operator's log alone.

What is raised outside this tree is a bug: logged with its traceback, retried, never a verdict.
"""

from enum import Enum
from typing import ClassVar


class Consequence(Enum):
    """What happens next, fixed by the family of the error."""

    DENY = "deny"
    WAIT = "wait"
    IGNORE = "ignore"
    RETRY = "retry"
    START_OVER = "start over"
    FATAL = "fatal"


class AttestationError(Exception):
    """Root of the tree; only leaves are raised."""

    consequence: ClassVar[Consequence]
    reason: ClassVar[str]
    check: ClassVar[str] = ""
    alarm: ClassVar[bool] = False
    """An operator should look, even where the node only waits."""

    def __init_subclass__(cls, *, check: str = "", alarm: bool = False, **kwargs: object) -> None:
        """Name the reason after the class; fix check number and alarm where given."""
        super().__init_subclass__(**kwargs)
        cls.reason = cls.__name__
        cls.check = check or cls.check
        cls.alarm = alarm or cls.alarm

    def __init__(self, message: str, *, detail: str = "") -> None:
        """Tell what is wrong (`message`, public) and what only an operator may see (`detail`)."""
        super().__init__(message)
        self.message = message
        self.detail = detail


class Denied(AttestationError):
    """Can never become true for this CSR: it is denied, and nothing else is lost."""

    consequence = Consequence.DENY


class Waiting(AttestationError):
    """May become true: the CSR stays pending, and is looked at again."""

    consequence = Consequence.WAIT


class Ignored(AttestationError):
    """Not ours: nothing is written."""

    consequence = Consequence.IGNORE


class Unavailable(AttestationError):
    """Could not be decided now (a server, the TPM, a lost race): tried again with backoff."""

    consequence = Consequence.RETRY


class StartOver(AttestationError):
    """This exchange is over for the node; the next one begins after its backoff."""

    consequence = Consequence.START_OVER


class Fatal(AttestationError):
    """Somebody has to change something first: configuration, permissions, hardware."""

    consequence = Consequence.FATAL


# R: is it ours, and who asks


class NotOptedIn(Ignored, check="R0"):
    """The Cluster has not opted in to this signer."""


class PolicyMissing(Waiting, check="R0", alarm=True):
    """No policy is configured for the Cluster."""


class MultipleClientSigners(Waiting, check="R0", alarm=True):
    """The Cluster names more than one client signer."""


class AutoApproveBindingPresent(Waiting, check="R0", alarm=True):
    """A kubeadm binding lets kube-controller-manager approve client certificates unattested."""


class NotOurSigner(Ignored, check="R1"):
    """The CSR names another signer."""


class AlreadyDecided(Ignored, check="R1"):
    """The CSR has a certificate, or is Denied or Failed."""


class UsagesNotAllowed(Denied, check="R2"):
    """`spec.usages` is not exactly what a kubelet asks for."""


class RequesterNotAllowed(Denied, check="R3"):
    """The requester is neither a bootstrapper nor the node itself."""


class AnnotationsFull(Denied):
    """The requester's annotations leave no room for the signer's."""


# P: parsing


class TooLarge(Denied, check="P1"):
    """The request, or the data in it, is over a size limit."""


class PemNotCanonical(Denied, check="P2"):
    """The text is not the canonical encoding of its PEM blocks."""


class PemBlocksUnexpected(Denied, check="P2"):
    """Not exactly the PEM blocks that are expected, in their order."""


class ProviderUnknown(Denied, check="P2"):
    """The attestation provider is not `tpm`."""


class RequestMalformed(Denied, check="P3"):
    """The PKCS#10 request is not strict DER of the profile."""


class RequestSignatureInvalid(Denied, check="P3"):
    """The PKCS#10 request is not signed by its own key."""


class RequestKeyNotAllowed(Denied, check="P3"):
    """The kubelet's key is of a type, size or exponent that is not taken."""


class RequestKeyWeak(Denied, check="P3"):
    """The kubelet's key is known to be weak."""


class SubjectNotAllowed(Denied, check="P4"):
    """The subject is not exactly O=system:nodes and CN=system:node:<name>."""


class NodeNameInvalid(Denied, check="P4"):
    """The node name is not a lower-case DNS-1123 subdomain."""


class AttributeNotAllowed(Denied, check="P5"):
    """The request has an attribute other than one extensionRequest."""


class ExtensionNotAllowed(Denied, check="P5"):
    """The request has an extension that is not taken, or one twice."""


class ProviderIDMissing(Denied, check="P5"):
    """The provider ID extension is missing."""


class ProviderIDMalformed(Denied, check="P5"):
    """The provider ID extension is critical, not a DER UTF8String, or not a provider ID."""


class AttestationDataMalformed(Denied, check="P6"):
    """The attestation data is not strict JSON of its kind."""


class UnsupportedVersion(Denied, check="P6"):
    """The attestation data is of a version that is not spoken here."""


# C: the challenge that is answered


class AnswerExpired(Denied, check="C1"):
    """The answered challenge is too old, or of the future."""


class ChallengeKeyUnknown(Ignored, check="C1"):
    """The answered challenge was made under a key that is not known here."""


# A: attestation key


class AttestationKeyMalformed(Denied, check="A1"):
    """The attestation key is not a TPM2B_PUBLIC."""


class AttestationKeyAttributesNotAllowed(Denied, check="A1"):
    """The attestation key is not a restricted signing key that never left its TPM."""


class AttestationKeySchemeNotAllowed(Denied, check="A1"):
    """The attestation key's scheme, hash, size or curve is not taken."""


class AttestationKeyWeak(Denied, check="A1"):
    """The attestation key is no valid key, or is known to be weak."""


# Q: quote


class QuoteMalformed(Denied, check="Q1"):
    """The quote is not a TPMS_ATTEST of type quote made by a TPM."""


class SignatureMalformed(Denied, check="Q1"):
    """The signature is not a TPMT_SIGNATURE of the attestation key's scheme and hash."""


class QuoteSignatureInvalid(Denied, check="Q1"):
    """The quote is not signed by the attestation key."""


class AnswerNotBound(Denied, check="Q2"):
    """The quote does not belong to this challenge, requester and object."""


class PcrSelectionMismatch(Denied, check="Q3"):
    """The quoted PCRs are not those that the policy asks for."""


class PcrBankUnavailable(Denied, check="Q3"):
    """The TPM has not allocated a PCR bank that the policy asks for."""


class PcrDigestMismatch(Denied, check="Q3"):
    """The PCR values are not those that were quoted."""


class PcrPolicyMismatch(Denied, check="Q4"):
    """A PCR holds a value that the policy does not allow."""


class EventLogMissing(Denied, check="Q4"):
    """The policy asks for the event log, and the answer has none."""


class EventLogMalformed(Denied, check="Q4"):
    """The event log cannot be read."""


class EventLogMismatch(Denied, check="Q4"):
    """The event log does not replay to the quoted PCRs."""


class EventLogPolicyMismatch(Denied, check="Q4"):
    """The measured boot is not one that the policy allows."""


# M: Machine and Node


class MachineNotFound(Waiting, check="M1"):
    """No Machine of this Cluster has the provider ID."""


class MachineAmbiguous(Denied, check="M1"):
    """Several Machines of this Cluster have the provider ID."""


class BootstrapNotReady(Waiting, check="M2"):
    """The Machine's bootstrap data is not ready."""


class ClusterPaused(Waiting, check="M2"):
    """The Cluster is paused; a first join waits."""


class MachineDeleting(Denied, check="M2"):
    """The Machine is being deleted; it gets no first certificate."""


class NodeNameMismatch(Denied, check="M3"):
    """The node name is not this Machine's."""


class NodeNameUnknown(Waiting, check="M3"):
    """Nothing tells the Machine's node name yet."""


class NodeOfAnotherMachine(Waiting, check="M4", alarm=True):
    """A Node of that name exists with another provider ID."""


class RequesterNameMismatch(Denied, check="M5"):
    """A node asks for a name that is not its own."""


class NodeRefMismatch(Waiting, check="M6", alarm=True):
    """The Machine's nodeRef, or another Node with its provider ID, speaks against a first use."""


# E: endorsement key


class EndorsementKeyMalformed(Denied, check="E1"):
    """The endorsement key is not a TPM2B_PUBLIC."""


class EndorsementKeyNotTemplate(Denied, check="E1"):
    """The endorsement key's public area is none of the TCG EK profile's templates."""


class EndorsementKeyWeak(Denied, check="E1"):
    """The endorsement key is no valid key, or is known to be weak."""


class EndorsementKeyMismatch(Denied, check="E2"):
    """Another endorsement key is on record for this Machine."""


class EndorsementKeyNotRegistered(Waiting, check="E2"):
    """No endorsement key is on record for this Machine."""


class EndorsementKeyRecordInvalid(Waiting, check="E2", alarm=True):
    """The endorsement key record of this Machine cannot be read."""


class EndorsementCertificateMissing(Denied, check="E2"):
    """The policy asks for an endorsement certificate, and the TPM holds none."""


class EndorsementCertificateMalformed(Denied, check="E2"):
    """An endorsement certificate cannot be read."""


class EndorsementCertificateMismatch(Denied, check="E2"):
    """The endorsement certificate certifies another key than the TPM's."""


class EndorsementCertificateUntrusted(Denied, check="E2"):
    """The endorsement certificate does not lead to a configured authority."""


class EndorsementCertificateNotAllowed(Denied, check="E2"):
    """The endorsement certificate, or one above it, breaks a rule: usage, algorithm, key, form."""


class EndorsementCertificateOutOfDate(Denied, check="E2"):
    """The endorsement certificate, or one above it, is not valid now."""


class EndorsementCertificateRevoked(Denied, check="E2"):
    """The endorsement certificate, or one above it, is revoked."""


class RevocationListOutOfDate(Waiting, check="E2", alarm=True):
    """A configured revocation list is not valid now, so nobody knows what is revoked."""


class OperatorActionRequired(Waiting, check="E2", alarm=True):
    """A first claim without a record is not safe here: an operator has to register the key."""


class EndorsementKeyBanned(Denied, check="E3"):
    """The endorsement key is banned."""


class EndorsementKeyInUseLocally(Denied, check="E3"):
    """The endorsement key is held by another living node."""


class EndorsementKeyHolderDeleting(Waiting, check="E3"):
    """The node that holds the endorsement key is being deleted."""


# K: claims


class EndorsementKeyInUse(Denied, check="K1"):
    """Another living node holds the endorsement key."""


class EndorsementKeyRecordConflict(Waiting, check="K1", alarm=True):
    """Two records give one endorsement key to two nodes."""


class NodeNameInUse(Denied, check="K2"):
    """The node name lives with another endorsement key."""


class NodeNameReserved(Waiting, check="K2"):
    """The node name's last certificate is still valid, and the policy waits for its end."""


class ClaimConflict(Unavailable, check="K3"):
    """Another replica wrote a claim at the same time: the claims are read and made again."""


# S: serving certificates


class SubjectAltNameMissing(Denied, check="S1"):
    """A serving request has no subject alternative name."""


class SubjectAltNameNotAllowed(Denied, check="S1"):
    """A subject alternative name is of a type or form that is not taken."""


class AddressNotOfMachine(Waiting, check="S2"):
    """A subject alternative name is none of the Machine's addresses."""


class AddressOfControlPlane(Denied, check="S3"):
    """A subject alternative name belongs to the control plane."""


class AddressOfAnotherMachine(Waiting, check="S3", alarm=True):
    """A subject alternative name is also another Machine's address."""


# What can be tried again


class ApiServerUnavailable(Unavailable):
    """The API server cannot be reached, or answers with an error of its own."""


class AuthorityUnavailable(Unavailable, check="I1"):
    """The cluster's certificate authority cannot sign now."""


class ChallengeKeyUnavailable(Unavailable):
    """The Secret with the challenges' master keys cannot be read, or holds none."""


class CsrChanged(Unavailable):
    """The CSR was changed or deleted while it was judged: it is looked at again."""


class TooManyChallenges(Unavailable):
    """This requester has been given challenges too fast."""


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


# What an operator has to change first


class KubeconfigRefused(Fatal):
    """A kubeconfig asks for something that is not taken from a Secret, or is none."""


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


class VersionRefused(StartOver):
    """The signer does not take the version that this program speaks."""


class ChallengeMalformed(StartOver):
    """The challenge cannot be read."""


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
