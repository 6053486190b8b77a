"""Verifies that RBAC of the workload cluster allows the requester its certificate (R4).

The review is that of kube-controller-manager's approver (pkg/controller/certificates/approver,
sarapprove.go), and of GKE's for serving certificates, with one addition: it names the signer. A
role that is limited to this name by `resourceNames` allows attested certificates, and does not let
kube-controller-manager approve certificates without attestation.
"""

from collections.abc import Callable
from typing import Final

from common.names import NODE_USER_PREFIX
from signer.errors import AccessNotAllowed
from signer.kinds.csr import Csr
from signer.verify.requests.recognize import CsrKind

_FIRST: Final = "nodeclient"
_RENEWAL: Final = "selfnodeclient"
_SERVING: Final = "selfnodeserver"
"""Subresources of `certificatesigningrequests`, which exist only as names of rights."""


def verify_access(csr: Csr, kind: CsrKind, may_create: Callable[[Csr, str], bool]) -> str:
    """Return the subresource that the requester may create (R4), after R3 and M5 have passed.

    `may_create` asks the API server of the workload cluster about the requester of the CSR, for its
    signer.

    Raises:
        AccessNotAllowed: RBAC does not allow it, or no longer.
        AccessReviewUnavailable: the API server does not decide.

    """
    subresource = _SERVING
    if kind is CsrKind.CLIENT:
        is_renewal = csr.username.startswith(NODE_USER_PREFIX)
        subresource = _RENEWAL if is_renewal else _FIRST
    if not may_create(csr, subresource):
        raise AccessNotAllowed(
            f"the requester may not create certificatesigningrequests/{subresource} for this signer"
        )
    return subresource
