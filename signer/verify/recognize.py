"""Whether a CSR is ours at all, and of which kind (R0, R1).

Trusts what the API server says about the object and what the Cluster's owner wrote on the Cluster;
nothing that the requester wrote. Source: docs/protocol.md section 5.
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
)
from signer.model import Cluster, Csr
from signer.policy import AutoApproveBindings, KubeletServingMode, Policy


class CsrKind(Enum):
    """What a CSR asks for; the value is its signer name."""

    CLIENT = CLIENT_SIGNER
    SERVING = SERVING_SIGNER
    BUILTIN_SERVING = BUILTIN_SERVING_SIGNER


_SETTLED: Final = ("Denied", "Failed")


def recognize_csr(csr: Csr, cluster: Cluster, policy: Policy) -> CsrKind:
    """Tell which kind of request this is.

    Approved is no input: it says nothing about what was verified, and by whom.

    Raises:
        Ignored: it is not for this signer (`NotOurSigner`, `NotOptedIn`) or already settled.
        Waiting: the Cluster has to be put right first.

    """
    kind = _kind_of(csr, policy)
    if csr.certificate is not None or any(c in csr.conditions for c in _SETTLED):
        raise AlreadyDecided("the request has a certificate, or is denied or failed")
    _require_opt_in(cluster)
    _require_no_auto_approval(cluster, policy)
    return kind


def _kind_of(csr: Csr, policy: Policy) -> CsrKind:
    """R1: read the kind off the signer name."""
    try:
        kind = CsrKind(csr.signer_name)
    except ValueError:
        raise NotOurSigner("the request names another signer") from None
    if kind is CsrKind.BUILTIN_SERVING and policy.builtin_serving is KubeletServingMode.IGNORE:
        raise NotOurSigner("the cluster's policy leaves the built-in serving signer to others")
    return kind


def _require_opt_in(cluster: Cluster) -> None:
    """R0: ours is the Cluster's client signer, and the only one; a second would be a way around."""
    if CLIENT_SIGNER not in cluster.client_signers:
        raise NotOptedIn("the Cluster has not opted in to this signer")
    if len(cluster.client_signers) > 1:
        raise MultipleClientSigners("the Cluster names more than one client signer")


def _require_no_auto_approval(cluster: Cluster, policy: Policy) -> None:
    """R0: while such a binding exists, a bootstrap token alone is worth a certificate."""
    if not cluster.auto_approve_bindings:
        return
    if policy.auto_approve_bindings is AutoApproveBindings.ALARM:
        return
    raise AutoApproveBindingPresent(
        "a kubeadm binding lets client certificates be approved without attestation",
        detail=", ".join(sorted(cluster.auto_approve_bindings)),
    )
