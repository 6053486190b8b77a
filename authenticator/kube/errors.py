"""What an HTTP call that went wrong is called in common/errors."""

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
"""Characters of the API server's own message that are shown."""


def error_for_status(status: int, content: bytes) -> AttestationError:
    """Name an answer that says no."""
    told = _message(content)
    match status:
        case 401:
            return Unauthorized("the API server does not accept the credential (401)")
        case 403:
            return Forbidden(
                f"the API server forbids it (403): {told}; see the RBAC that the signer comes with"
            )
        case 400 | 413 | 415 | 422:
            return Invalid(f"the API server rejects the request ({status}): {told}")
        case 409 | 429 | 500 | 502 | 503 | 504:
            return ApiServerUnavailable(f"the API server answers with {status}: {told}")
        case _:
            return ApiResponseMalformed(
                f"{status} is no answer of the API server: is the kubeconfig's server its address?"
            )


def _message(content: bytes) -> str:
    """Return what a Status object says, fit for one line."""
    try:
        message = str(objects.require_object(objects.decode_json(content)).get("message", ""))
    except ApiResponseMalformed:
        message = ""
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())[:MESSAGE_LIMIT]


def error_for_exception(error: BaseException) -> ApiServerUnavailable | ApiServerUntrusted:
    """Name a call that got no answer by what is behind it."""
    told = type(error).__name__
    for cause in _behind(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ApiServerUntrusted(
                f"the API server's certificate is not trusted: {cause.verify_message}; look at the"
                " clock, and at the kubeconfig's CA (after a rotation: put the new one there, or"
                " remove the kubeconfig and join again)"
            )
        if isinstance(cause, OSError) and cause.strerror:
            told = cause.strerror
    return ApiServerUnavailable(f"the API server cannot be reached: {told}")


def _behind(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and everything that it wraps; libraries do so in three ways."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        wrapped = (cause.__cause__, cause.__context__, *cause.args)
        waiting += [inner for inner in wrapped if isinstance(inner, BaseException)]
