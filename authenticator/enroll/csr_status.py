"""What the signer writes on a CSR: challenge, conditions, the reason for which it waits.

Others can write there too. So it is parsed strictly, and displayed without control characters.
"""

import contextlib
from typing import Final

from authenticator.errors import RequestDenied, RequestFailed, VersionRefused
from authenticator.model import Csr
from common.challenge import decode_challenge
from common.errors import ChallengeMalformed, UnsupportedVersion
from common.names import (
    CHALLENGE_ANNOTATION,
    PENDING_REASON_ANNOTATION,
    SUPPORTED_VERSIONS,
    SUPPORTED_VERSIONS_ANNOTATION,
)

CREDENTIAL_UNKNOWN: Final = "RequesterCredentialUnknown"
"""Reason with which the signer denies a request that was filed with an old certificate (K4)."""

NOT_ANSWERED: Final = "the signer has not answered yet"

MAX_MESSAGE_CHARS: Final = 300
"""Characters of a foreign message that are displayed."""


def find_challenge(csr: Csr) -> str | None:
    """Return the challenge if it is valid; the signer replaces one that is not."""
    text = csr.annotations.get(CHALLENGE_ANNOTATION)
    if text is not None:
        with contextlib.suppress(ChallengeMalformed):
            decode_challenge(text)
            return text
    return None


def raise_if_rejected(csr: Csr) -> None:
    """Raise RequestDenied, RequestFailed or VersionRefused when the CSR was rejected."""
    for condition, leaf in (("Denied", RequestDenied), ("Failed", RequestFailed)):
        if condition in csr.conditions:
            reason, message = csr.conditions[condition]
            if reason == UnsupportedVersion.reason:
                accepted = sanitize(csr.annotations.get(SUPPORTED_VERSIONS_ANNOTATION, "none"))
                raise VersionRefused(
                    f"{csr.spec.name}: this program supports {', '.join(SUPPORTED_VERSIONS)}, and"
                    f" the signer supports {accepted}; upgrade the older one",
                    detail=reason,
                )
            text = f"{condition.lower()}: {sanitize(reason)}: {sanitize(message)}"
            raise leaf(f"{csr.spec.name} was {text}", detail=sanitize(reason))


def pending_reason(csr: Csr) -> str:
    """Return the reason for which a pending CSR waits."""
    reason = csr.annotations.get(PENDING_REASON_ANNOTATION)
    if reason is not None:
        return f"the signer waits: {sanitize(reason)}"
    text = csr.annotations.get(CHALLENGE_ANNOTATION)
    if text is not None:
        try:
            decode_challenge(text)
        except ChallengeMalformed as error:
            return f"the signer's answer cannot be read, so it has to replace it: {error.message}"
    return NOT_ANSWERED


def sanitize(text: str) -> str:
    """Return a foreign text as one printable line of bounded length."""
    printable = "".join(c if c.isprintable() else " " for c in text[:MAX_MESSAGE_CHARS])
    return " ".join(printable.split())
