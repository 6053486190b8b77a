"""HTTP statuses and exceptions of a request as leaves of the error tree."""

import ssl
from collections.abc import Iterator
from typing import Final

from authenticator.errors import (
    ApiResponseMalformed,
    ApiServerUntrusted,
    Forbidden,
    Invalid,
    Unauthorized,
)
from authenticator.kube import objects
from common.errors import ApiServerUnavailable, AttestationError

MESSAGE_LIMIT: Final = 300
"""Characters that are shown of a message of the API server."""


def error_for_status(status: int, content: bytes) -> AttestationError:
    """Return the error for a response whose status is not a success."""
    message = _message(content)
    match status:
        case 401:
            return Unauthorized("the API server does not accept the credential (401)")
        case 403:
            return Forbidden(
                f"the API server forbids it (403): {message}; see the RBAC manifests of the signer"
            )
        case 400 | 413 | 415 | 422:
            return Invalid(f"the API server rejects the request ({status}): {message}")
        case 409 | 429 | 500 | 502 | 503 | 504:
            return ApiServerUnavailable(f"the API server answers with {status}: {message}")
        case _:
            return ApiResponseMalformed(
                f"no API server answers with {status}: is the server of the kubeconfig its address?"
            )


def _message(content: bytes) -> str:
    """Return the message of a Status object, as one printable line."""
    try:
        message = str(objects.require_object(objects.decode_json(content)).get("message", ""))
    except ApiResponseMalformed:
        message = ""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:MESSAGE_LIMIT]


def error_for_exception(error: BaseException) -> ApiServerUnavailable | ApiServerUntrusted:
    """Return the error for a request without response, by its innermost known cause."""
    reason = type(error).__name__
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ApiServerUntrusted(
                f"the API server's certificate is not trusted: {cause.verify_message}; check the"
                " clock and the CA of the kubeconfig (after a rotation of the CA: put the new one"
                " there, or remove the kubeconfig and join again)"
            )
        if isinstance(cause, OSError) and cause.strerror:
            reason = cause.strerror
    return ApiServerUnavailable(f"the API server cannot be reached: {reason}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and every error in it: libraries nest them in three ways."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        wrapped = (cause.__cause__, cause.__context__, *cause.args)
        waiting += [inner for inner in wrapped if isinstance(inner, BaseException)]
