"""Reads whether an API server allows what an access review asks."""

from signer.kube.decode import Fields, Source, decode


class _Status(Fields):
    allowed: bool


class _Review(Fields):
    status: _Status


def read_access_review(source: Source) -> bool:
    """Return the answer of a review, for a user or for the requester. Raises `ValueError`."""
    return decode(source, _Review).status.allowed
