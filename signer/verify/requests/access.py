"""Verifies that RBAC of the workload cluster allows the requester its certificate (R4).

The review is that of kube-controller-manager's approver (pkg/controller/certificates/approver,
sarapprove.go), and of GKE's for serving certificates, with one addition: it names the signer. A
role that is limited to this name by `resourceNames` allows attested certificates, and does not let
kube-controller-manager approve certificates without attestation.
"""

from typing import Final, Protocol

from common.names import NODE_USER_PREFIX
from signer.errors import AccessNotAllowed
from signer.model import Csr
from signer.verify.requests.recognize import CsrKind

_FIRST: Final = "nodeclient"
_RENEWAL: Final = "selfnodeclient"
_SERVING: Final = "selfnodeserver"
"""Subresources of `certificatesigningrequests`, which exist only as names of rights."""


class AccessReviewer(Protocol):
    """Asks the API server of the workload cluster."""

    def may_create(self, csr: Csr, subresource: str) -> bool:
        """Return whether the requester of the CSR may `create` the subresource for its signer.

        Raises `AccessReviewUnavailable` if the API server does not decide.
        """


def verify_access(csr: Csr, kind: CsrKind, reviewer: AccessReviewer) -> str:
    """Return the subresource that the requester may create (R4), after R3 and M5 have passed.

    Raises:
        AccessNotAllowed: RBAC does not allow it, or no longer.
        AccessReviewUnavailable: the API server does not decide.

    """
    subresource = _SERVING
    if kind is CsrKind.CLIENT:
        is_renewal = csr.username.startswith(NODE_USER_PREFIX)
        subresource = _RENEWAL if is_renewal else _FIRST
    if not reviewer.may_create(csr, subresource):
        raise AccessNotAllowed(
            f"the requester may not create certificatesigningrequests/{subresource} for this signer"
        )
    return subresource
