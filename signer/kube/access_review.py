"""Reads whether an API server allows what an access review asks."""

from typing import Annotated, Final

import msgspec

from signer.fairness.memory_budget import deep_size
from signer.kinds.decode import (
    MAX_ENTRIES,
    MAX_TEXT,
    Fields,
    Json,
    MaybeText,
    Source,
    Text,
    Texts,
    decode,
    texts,
)

_MAX_REQUESTER: Final = 64 << 10
"""Bytes of memory of a requester, which a worker holds while it waits for the review. Nodes and
bootstrap tokens take about 1 KiB."""


class _Status(Fields):
    allowed: bool
    evaluation_error: MaybeText = None


class _Review(Fields):
    status: _Status


def read_access_review(source: Source) -> bool:
    """Return the answer of a review, for a user or for the requester. Raises `ValueError`."""
    return decode(source, _Review).status.allowed


def read_decided_review(source: Source) -> bool:
    """Return the answer of a review. Raises `ValueError`, also if an authorizer has failed.

    An API server may answer `allowed: false` although it could not ask an authorizer.
    """
    status = decode(source, _Review).status
    if not status.allowed and status.evaluation_error:
        raise ValueError(f"the review is not complete: {status.evaluation_error}")
    return status.allowed


class _Meta(Fields):
    uid: Text


class _Requester(Fields):
    username: MaybeText = None
    uid: MaybeText = None
    groups: Texts = None
    extra: (
        Annotated[
            dict[Annotated[str, msgspec.Meta(max_length=MAX_TEXT)], Texts],
            msgspec.Meta(max_length=MAX_ENTRIES),
        ]
        | None
    ) = None


class _CsrRequester(Fields):
    metadata: _Meta
    spec: _Requester


def read_requester(source: Source) -> tuple[str, Json]:
    """Return the UID of a CSR, and its requester as the `spec` of a review. Raises `ValueError`."""
    csr = decode(source, _CsrRequester)
    subject = _subject(csr.spec)
    if deep_size(subject) > _MAX_REQUESTER:
        raise ValueError("the requester of the CSR takes over 64 KiB of memory")
    return csr.metadata.uid, subject


class _TokenStatus(Fields):
    authenticated: bool = False
    user: _Requester | None = None


class _TokenReview(Fields):
    status: _TokenStatus | None = None


def read_token_review(source: Source) -> Json | None:
    """Return the user of a token as the `spec` of a review, `None` for a token that is refused.

    Raises `ValueError`.
    """
    status = decode(source, _TokenReview).status or _TokenStatus()
    return _subject(status.user) if status.authenticated and status.user is not None else None


def _subject(requester: _Requester) -> Json:
    return {
        "user": requester.username or "",
        "uid": requester.uid or "",
        "groups": list(texts(requester.groups)),
        "extra": {key: list(texts(values)) for key, values in (requester.extra or {}).items()},
    }
