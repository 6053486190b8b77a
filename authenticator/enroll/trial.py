"""Whether the API server authenticates a client certificate as this node's."""

from typing import Final

from authenticator.errors import CertificateNotAccepted, Forbidden, Unauthorized
from authenticator.model import CsrApi
from common.names import NODE_USER_PREFIX

ANONYMOUS_USER: Final = "system:anonymous"


def is_accepted(api: CsrApi) -> bool:
    """Return False only when the API server answers 401 to the credential of `api`."""
    try:
        api.self_subject_review()
    except Unauthorized:
        return False
    except Forbidden:
        return True  # authorization follows authentication
    return True


def require_accepted(api: CsrApi, node_name: str) -> None:
    """Require that the API server knows the credential of `api` as this node's.

    403 shows that it was authenticated: cluster operators may remove `system:basic-user`. The
    exception is an API server that ignores client certificates: then the user is anonymous. Before
    Kubernetes 1.28 there is no SelfSubjectReview, and the question is one that nodes are allowed.
    Raises CertificateNotAccepted.
    """
    try:
        name = api.self_subject_review()
        accepted = api.can_create_csrs() if name is None else name == NODE_USER_PREFIX + node_name
    except Unauthorized as error:
        raise CertificateNotAccepted(
            "the API server refuses the new certificate: is the signer's CA its client CA?"
        ) from error
    except Forbidden as error:
        accepted = ANONYMOUS_USER not in error.message
    if not accepted:
        raise CertificateNotAccepted(
            "the API server does not know the new certificate as this node's"
        )
