"""Whether the API server authenticates a client certificate as this node's."""

import contextlib
from typing import Final

from authenticator.errors import (
    CertificateNotAccepted,
    CertificateNotYetValid,
    Forbidden,
    Unauthorized,
)
from authenticator.model import CsrApi
from authenticator.state.credential import rfc3339
from common.errors import AttestationError
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


def require_accepted(api: CsrApi, node_name: str, not_before: int) -> None:
    """Require that the API server knows the credential of `api` as this node's.

    `not_before` is the time from which on the certificate is valid. An API server whose clock has
    not reached it answers 401, as for a certificate of another CA.

    403 shows that it was authenticated: cluster operators may remove `system:basic-user`. The
    exception is an API server that ignores client certificates: then the user is anonymous. Before
    Kubernetes 1.28 there is no SelfSubjectReview, and the question is one that nodes are allowed.
    Raises `CertificateNotAccepted`, `CertificateNotYetValid`.
    """
    try:
        name = api.self_subject_review()
        accepted = api.can_create_csrs() if name is None else name == NODE_USER_PREFIX + node_name
    except Unauthorized as error:
        _require_begun(api, not_before)
        raise CertificateNotAccepted(
            "the API server refuses the new certificate: is the signer's CA its client CA?"
        ) from error
    except Forbidden as error:
        accepted = ANONYMOUS_USER not in error.message
    if not accepted:
        raise CertificateNotAccepted(
            "the API server does not know the new certificate as this node's"
        )


def _require_begun(api: CsrApi, not_before: int) -> None:
    """Raise CertificateNotYetValid if a certificate is not valid yet by the API server's clock."""
    server_time = None
    with contextlib.suppress(AttestationError):
        server_time = api.server_time()
    if server_time is not None and server_time < not_before:
        raise CertificateNotYetValid(
            f"the new certificate is valid from {rfc3339(not_before)}, and the API server's clock"
            f" says {rfc3339(server_time)}: the signer's clock is ahead, or the API server's is"
            " behind; correct it. The same certificate is tried again"
        )
