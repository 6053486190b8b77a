"""Decides whether a CSR is for this signer, and of which kind it is (R0, R1).

Trusts the API server's fields of the object and what the Cluster's owner wrote on the Cluster.
Reads nothing that the requester wrote. Source: docs/protocol.md section 5.
"""

from enum import Enum
from typing import Final

from common.names import BUILTIN_SERVING_SIGNER, CLIENT_SIGNER, SERVING_SIGNER
from signer.errors import (
    AlreadyDecided,
    AutoApproveBindingPresent,
    MultipleClientSigners,
    NotOptedIn,
    NotOurSigner,
    ServingOnly,
)
from signer.kinds.cluster import Cluster
from signer.kinds.csr import Csr
from signer.policy.policy import (
    Approval,
    AutoApproveBindings,
    KubeletServingMode,
    Policy,
    PolicyMode,
)


class CsrKind(Enum):
    """What a CSR requests; the value is its signer name."""

    CLIENT = CLIENT_SIGNER
    SERVING = SERVING_SIGNER
    BUILTIN_SERVING = BUILTIN_SERVING_SIGNER


_FINAL_CONDITIONS: Final = ("Denied", "Failed")


def recognize_csr(csr: Csr, cluster: Cluster, policy: Policy) -> CsrKind:
    """Return the kind of the request.

    The condition Approved is not read: it does not say what was verified, or by whom.

    Raises:
        NotOurSigner, NotOptedIn: the request is not for this signer.
        AlreadyDecided: the request is decided.
        Waiting: an operator has to correct the Cluster first.

    """
    kind = _kind_of(csr, policy)
    if csr.certificate is not None or any(c in csr.conditions for c in _FINAL_CONDITIONS):
        raise AlreadyDecided("the request has a certificate, or is denied or failed")
    _require_opt_in(cluster)
    if policy.mode is PolicyMode.SERVING_ONLY:
        _require_kubelet_serving(kind)
    else:
        _require_no_auto_approval(cluster, policy)
    return kind


def _kind_of(csr: Csr, policy: Policy) -> CsrKind:
    """R1: derive the kind from the signer name."""
    try:
        kind = CsrKind(csr.signer_name)
    except ValueError:
        raise NotOurSigner("the request names another signer") from None
    if kind is CsrKind.BUILTIN_SERVING and policy.serving.builtin is KubeletServingMode.IGNORE:
        raise NotOurSigner("the cluster's policy leaves the built-in serving signer to others")
    return kind


def _require_opt_in(cluster: Cluster) -> None:
    """R0: require this client signer and no other; a second one would bypass the attestation."""
    if CLIENT_SIGNER not in cluster.client_signers:
        raise NotOptedIn("the Cluster has not opted in to this signer")
    if len(cluster.client_signers) > 1:
        raise MultipleClientSigners("the Cluster names more than one client signer")


def _require_kubelet_serving(kind: CsrKind) -> None:
    """R0: refuse to attest nodes of a Cluster whose other nodes join without attestation."""
    if kind is not CsrKind.BUILTIN_SERVING:
        raise ServingOnly(
            "the Cluster's policy is ServingOnly: the signer only approves requests to"
            f" {BUILTIN_SERVING_SIGNER}"
        )


def _require_no_auto_approval(cluster: Cluster, policy: Policy) -> None:
    """R0: refuse bindings with which a bootstrap token alone is enough for a certificate."""
    if not cluster.auto_approve_bindings:
        return
    if policy.auto_approve_bindings is AutoApproveBindings.ALARM:
        return
    waits = policy.auto_approve_bindings is AutoApproveBindings.REMOVE_WHEN_ATTESTED
    if waits and cluster.keeps_bindings:
        # The Nodes for which the bindings stay can only attest if certificates are issued.
        return
    if policy.approval is Approval.DISABLED:
        # The cluster still needs its bindings, and no certificate is issued.
        return
    raise AutoApproveBindingPresent(
        "a ClusterRoleBinding lets client certificates be approved without attestation",
        detail=", ".join(sorted(cluster.auto_approve_bindings)),
    )
