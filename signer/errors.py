"""What the signer alone can raise; the families are those of common/errors.py."""

from common.errors import Denied, Fatal, Ignored, Unavailable, Waiting

# R: whether the request is for this signer, and who sent it


class ProblemsError(Exception):
    """What a person wrote is invalid; `problems` has every reason, one line each.

    It decides no request, so it is not in the error tree.
    """

    def __init__(self, *problems: str) -> None:
        """Keep every problem."""
        super().__init__("; ".join(problems))
        self.problems = problems


class NotOptedIn(Ignored, check="R0"):
    """The Cluster has not opted in to this signer."""


class PolicyMissing(Waiting, check="R0", alarm=True):
    """No policy is configured for the Cluster."""


class PolicyConflict(Waiting, check="R0", alarm=True):
    """Several policies select the Cluster."""


class PolicyInvalid(Waiting, check="R0", alarm=True):
    """The policy that selects the Cluster is invalid, and no earlier version of it is in force."""


class MultipleClientSigners(Waiting, check="R0", alarm=True):
    """The Cluster names more than one client signer."""


class AttestationPolicyPresent(Waiting, check="R0"):
    """A policy selects the Cluster, so the insecure signer does not serve it."""


class AutoApproveBindingPresent(Waiting, check="R0", alarm=True):
    """A ClusterRoleBinding lets kube-controller-manager approve unattested client certificates."""


class ServingOnly(Waiting, check="R0"):
    """The policy has the mode ServingOnly: the signer issues no certificates to the Cluster."""


class ApprovalDisabled(Waiting):
    """The policy disables approvals: the signer verifies the request, and decides nothing."""


class NotOurSigner(Ignored, check="R1"):
    """The CSR names another signer."""


class AlreadyDecided(Ignored, check="R1"):
    """The CSR has a certificate, or is Denied or Failed."""


class UsagesNotAllowed(Denied, check="R2"):
    """`spec.usages` is not exactly what a kubelet asks for."""


class RequesterNotAllowed(Denied, check="R3"):
    """The requester is neither a bootstrapper nor the node itself."""


class AccessNotAllowed(Waiting, check="R4"):
    """RBAC of the workload cluster does not allow the requester this kind of certificate."""


class AccessReviewUnavailable(Unavailable, check="R4"):
    """The API server did not decide whether RBAC allows the requester its certificate."""


class AnnotationsFull(Denied):
    """The requester's annotations leave no space for the signer's."""


class TooManyPendingRequests(Denied):
    """The requester's pending requests are over its share of the memory for them."""


class ServingRequestExpired(Denied):
    """A kubelet-serving request waited for longer than the kubelet does."""


class OfferExpired(Ignored):
    """The offer is so old that its node has discarded it."""


# P: parsing


class RequestKeyWeak(Denied, check="P3"):
    """The kubelet's key is known to be weak."""


class ProviderIDMissing(Denied, check="P5"):
    """The provider ID extension is missing."""


# C: the challenge that is answered


class AnswerExpired(Denied, check="C1"):
    """The answered challenge is too old, or its time is in the future."""


class ChallengeKeyUnknown(Ignored, check="C1"):
    """The answered challenge was derived from a challenge key that this signer does not have."""


# A: attestation key


class AttestationKeyMalformed(Denied, check="A1"):
    """The attestation key is not a TPM2B_PUBLIC."""


class AttestationKeyAttributesNotAllowed(Denied, check="A1"):
    """The attestation key is not a restricted signing key that never left its TPM."""


class AttestationKeySchemeNotAllowed(Denied, check="A1"):
    """The attestation key's scheme, hash, size or curve is not accepted."""


class AttestationKeyWeak(Denied, check="A1"):
    """The attestation key is invalid, or is known to be weak."""


class AttestationCertificateMalformed(Denied, check="A2"):
    """The certificate of the attestation key cannot be read."""


class AttestationCertificateMismatch(Denied, check="A2"):
    """The TPM's certificate for attestation keys certifies another key than the one presented."""


class AttestationCertificateUntrusted(Denied, check="A2"):
    """The certificate of the attestation key does not lead to a configured authority."""


class AttestationCertificateNotAllowed(Denied, check="A2"):
    """The certificate of the attestation key, or one above it, breaks a rule."""


class AttestationCertificateOutOfDate(Denied, check="A2"):
    """The certificate of the attestation key, or one above it, is not valid now."""


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


class PcrSignaturesMalformed(Denied, check="Q4"):
    """The signatures of PCR values cannot be read."""


class PcrSignatureRevoked(Denied, check="Q4"):
    """The policy revokes the vendor's signature of a PCR value."""


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
    """The Machine's node name is not known yet."""


class NodeOfAnotherMachine(Waiting, check="M4", alarm=True):
    """A Node of that name exists with another provider ID."""


class RequesterNameMismatch(Denied, check="M5"):
    """A node asks for a name that is not its own."""


class MachineAlreadyCertified(Denied, check="M7"):
    """The Machine has got the one certificate that the insecure signer gives it."""


class MachineNotNew(Waiting, check="M7"):
    """The policy allows the first join of new Machines only, and this one is not new."""


class NodeRefMismatch(Waiting, check="M6", alarm=True):
    """The Machine's nodeRef, or another Node with its provider ID, contradicts a first use."""


# E: endorsement key


class EndorsementKeyMalformed(Denied, check="E1"):
    """The endorsement key is not a TPM2B_PUBLIC."""


class EndorsementKeyNotTemplate(Denied, check="E1"):
    """The endorsement key's public area matches no template of the TCG EK profile."""


class EndorsementKeyWeak(Denied, check="E1"):
    """The endorsement key is invalid, or is known to be weak."""


class EndorsementKeyMismatch(Denied, check="E2"):
    """Another endorsement key is registered for this Machine."""


class EndorsementKeyNotRegistered(Waiting, check="E2"):
    """No endorsement key is registered for this Machine."""


class EndorsementKeyRegistrationInvalid(Waiting, check="E2", alarm=True):
    """The endorsement key record of this Machine cannot be read."""


class PlatformUnavailable(Waiting, check="E2", alarm=True):
    """The platform that knows the endorsement keys of the Machine does not answer."""


class PlatformQueryFailed(Waiting, check="E2", alarm=True):
    """The platform refuses the query for the Machine, or its answer cannot be read."""


class PlatformLocationNotAllowed(Waiting, check="E2", alarm=True):
    """The policy does not allow the place that the Machine's provider ID names."""


class PlatformAnswerPending(Unavailable, check="E2"):
    """The platform has not answered the query for the Machine yet."""


class EndorsementKeyUnproved(Denied, check="E2"):
    """No statement of the certified attestation key says that its TPM made the endorsement key."""


class QuoteOfOtherMachine(Denied, check="E2"):
    """The quote does not name the virtual machine of the Machine of the request."""


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


class EndorsementCertificateOfOtherMachine(Denied, check="E2"):
    """The endorsement certificate names another machine than the Machine of the request."""


class EndorsementCertificateNameNotAllowed(Denied, check="E2"):
    """The endorsement certificate names an instance that the policy does not allow."""


class EndorsementCertificateUnnamed(Waiting, check="E2"):
    """The endorsement certificate names no machine, and the policy accepts names only."""


class EndorsementCertificateOutOfDate(Denied, check="E2"):
    """The endorsement certificate, or one above it, is not valid now."""


class EndorsementCertificateRevoked(Denied, check="E2"):
    """The endorsement certificate, or one above it, is revoked."""


class RevocationListOutOfDate(Waiting, check="E2", alarm=True):
    """A configured revocation list is not valid now, so revocation cannot be checked."""


class OperatorActionRequired(Waiting, check="E2", alarm=True):
    """A first claim without a record is not safe here: an operator has to register the key."""


class EndorsementKeyBanned(Denied, check="E3"):
    """The endorsement key is banned."""


class EndorsementKeyReleased(Denied, check="E3"):
    """An operator released the endorsement key from this Cluster or Machine."""


class EndorsementKeyInUseLocally(Denied, check="E3"):
    """Another existing node of this Cluster holds the endorsement key."""


class EndorsementKeyHolderDeleting(Waiting, check="E3"):
    """The node that holds the endorsement key is being deleted."""


# K: claims


class EndorsementKeyInUse(Denied, check="K1"):
    """Another existing node holds the endorsement key."""


class EndorsementKeyQuotaExceeded(Waiting, check="K1", alarm=True):
    """The Cluster's namespace has claimed more endorsement keys than its quota allows."""


class EndorsementKeyRegistrationConflict(Waiting, check="K1", alarm=True):
    """Two records give one endorsement key to two nodes."""


class NodeNameInUse(Denied, check="K2"):
    """A live claim gives the node name to another endorsement key."""


class NodeNameReserved(Waiting, check="K2"):
    """The Machine with the node name is being deleted, or its last certificate has not expired."""


class BanNotRecorded(Waiting, check="K2", alarm=True):
    """The workload cluster lists a ban of the key that the management cluster does not have."""


class NodeNameHolderNotRecorded(Waiting, check="K2", alarm=True):
    """The workload cluster lists a holder of the node name whom no claim names."""


class EndedCertificatesNotListed(Unavailable, check="K2", alarm=True):
    """The certificates that a new one replaces cannot be listed as ended."""


class AttestedNodeUnreadable(Unavailable, check="K2", alarm=True):
    """An AttestedNode cannot be read: its name and its certificates are unknown."""


class RequesterCredentialUnknown(Denied, check="K4", alarm=True):
    """A node's request was filed with a client certificate that its AttestedNode does not name."""


class ClaimConflict(Unavailable, check="K3"):
    """Another replica wrote a claim at the same time: the signer starts again with K1."""


# S: serving certificates


class SubjectAltNameMissing(Denied, check="S1"):
    """A serving request has no subject alternative name."""


class SubjectAltNameNotAllowed(Denied, check="S1"):
    """A subject alternative name is of a type or form that is not accepted."""


class AddressNotOfMachine(Waiting, check="S2"):
    """A subject alternative name is not an address of the Machine."""


class AddressOfControlPlane(Denied, check="S3"):
    """A subject alternative name belongs to the control plane."""


class AddressReserved(Denied, check="S3"):
    """A subject alternative name cannot belong to a single machine, e.g. loopback."""


class AddressOfAnotherMachine(Waiting, check="S3", alarm=True):
    """A subject alternative name is also another Machine's address."""


# I: issuing


class AuthorityShared(Waiting, check="I1", alarm=True):
    """Another Cluster has the same certificate authority, and a policy of the two forbids it."""


class CertificateNotAsVerified(Waiting, check="I1", alarm=True):
    """The signed certificate does not say exactly what was verified: it is not written."""


# An alarm that stops no request


class ClaimsOutOfDate(Unavailable, alarm=True):
    """AttestedNodes of a Cluster were lost, as after a restore of the management cluster."""


# A renewal that was not requested, so no request has this reason


class RenewalOverdue(Unavailable):
    """The node has not renewed its client certificate in time."""


# Temporary failures: the signer retries


class AuthorityUnavailable(Unavailable, check="I1"):
    """The cluster's certificate authority cannot sign now."""


class PermissionMissing(Unavailable, alarm=True):
    """The management cluster forbids the signer a request that a check needs."""


class ChallengeKeyUnavailable(Unavailable):
    """The Secret with the challenge keys cannot be read, or holds no key."""


class CsrChanged(Unavailable):
    """The CSR was changed or deleted while it was verified: the signer verifies it again."""


class TooManyChallenges(Unavailable):
    """The requester has exceeded its rate of challenges."""


# Failures that an operator has to correct


class KubeconfigRefused(Fatal):
    """A kubeconfig Secret is not a valid kubeconfig, or has a setting that is not allowed."""
