"""What the signer says on a CSR: challenge, conditions, what it waits for.

Others write there as well, so nothing of it is more than a word: it is read strictly, and shown
without what a terminal would take for orders.
"""

import contextlib
from typing import Final

from authenticator.errors import RequestDenied, RequestFailed, VersionRefused
from authenticator.model import Csr
from common import evidence
from common.errors import ChallengeMalformed, UnsupportedVersion
from common.names import (
    CHALLENGE_ANNOTATION,
    PENDING_REASON_ANNOTATION,
    SUPPORTED_VERSIONS,
    SUPPORTED_VERSIONS_ANNOTATION,
)

MAX_MESSAGE_CHARS: Final = 300
"""Characters of others that are shown."""


def find_challenge(csr: Csr) -> str | None:
    """Return the challenge if it can be read; the signer writes one that cannot again."""
    text = csr.annotations.get(CHALLENGE_ANNOTATION)
    if text is not None:
        with contextlib.suppress(ChallengeMalformed):
            evidence.decode_challenge(text)
            return text
    return None


def raise_if_rejected(csr: Csr) -> None:
    """Raise RequestDenied, RequestFailed or VersionRefused when the CSR was."""
    for condition, leaf in (("Denied", RequestDenied), ("Failed", RequestFailed)):
        if condition in csr.conditions:
            reason, message = csr.conditions[condition]
            if reason == UnsupportedVersion.reason:
                taken = sanitize(csr.annotations.get(SUPPORTED_VERSIONS_ANNOTATION, "none"))
                raise VersionRefused(
                    f"{csr.spec.name}: this program speaks {', '.join(SUPPORTED_VERSIONS)}, and the"
                    f" signer takes {taken}; bring both to versions that meet",
                    detail=reason,
                )
            told = f"{condition.lower()}: {sanitize(reason)}: {sanitize(message)}"
            raise leaf(f"{csr.spec.name} was {told}", detail=sanitize(reason))


def pending_reason(csr: Csr) -> str:
    """Say what a pending CSR waits for."""
    reason = csr.annotations.get(PENDING_REASON_ANNOTATION)
    return (
        "no word from the signer yet" if reason is None else f"the signer waits: {sanitize(reason)}"
    )


def sanitize(text: str) -> str:
    """Return what somebody else said, fit for one line of a log."""
    printable = "".join(c if c.isprintable() else " " for c in text[:MAX_MESSAGE_CHARS])
    return " ".join(printable.split())
