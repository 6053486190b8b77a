"""Share of one requester in the memory for the pending CSRs of one workload cluster.

The cache of CSRs has a budget. Without shares, one node could fill it with requests that wait, and
the requests of the other nodes would not be read. A requester above its share is denied until its
pending requests fit again.
"""

from collections import Counter
from threading import Lock
from typing import Final

from common.names import NODE_USER_PREFIX
from signer.errors import TooManyPendingRequests
from signer.model import Csr

MAX_BYTES_OF_NODE: Final = 3 << 20
"""A node has one or two pending requests: this is room for two answers with the largest event
log."""
MAX_BYTES: Final = 32 << 20
"""Of any other requester. A pool of machines may share one bootstrap token: this is room for about
four thousand offers that are pending at once."""
_CSR_OVERHEAD: Final = 2048
"""Approximate bytes that a CSR uses in addition to its request and its annotations."""


class RequesterShares:
    """Bytes of pending CSRs by requester, for any number of threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bytes: Counter[str] = Counter()

    def update(self, before: Csr | None, after: Csr | None) -> None:
        """Count a CSR: `before` is `None` when it was added, `after` when it was removed."""
        with self._lock:
            for csr, sign in ((before, -1), (after, 1)):
                if csr is not None:
                    self._bytes[csr.username] += sign * _size(csr)
                    if not self._bytes[csr.username]:
                        del self._bytes[csr.username]

    def verify_share(self, requester: str) -> None:
        """Return if the pending CSRs of a requester are within its share.

        Raises:
            TooManyPendingRequests: they are not.

        """
        allowed = MAX_BYTES_OF_NODE if requester.startswith(NODE_USER_PREFIX) else MAX_BYTES
        with self._lock:
            pending = self._bytes[requester]
        if pending > allowed:
            raise TooManyPendingRequests(
                "this requester has too many pending requests",
                detail=f"{pending} bytes are pending, and {allowed} are allowed",
            )


def _size(csr: Csr) -> int:
    return _CSR_OVERHEAD + len(csr.request) + csr.annotations_size
