"""Records in the claim of a node why the signer refuses to renew its certificate.

Workers note refusals, and one thread writes them: no verdict waits for these writes or depends on
them. The claim keeps a refusal over restarts, over a change of the replica and over
`clusterctl move`, and the next client certificate removes it. A node that retries every second
costs nothing: a refusal for the same reason and values is written again after an hour, and another
one after ten seconds.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Final

from signer.errors import AttestedNodeUnreadable, ClaimConflict
from signer.fairness.outbox import Outbox
from signer.kinds.attested_node import AttestedNodeObject, Refusal
from signer.kinds.cluster import ClusterKey
from signer.seams import ClaimStore

_logger = logging.getLogger(__name__)

_REPEAT: Final = timedelta(hours=1)
_MIN_INTERVAL: Final = 10.0
"""Seconds between two writes about one node."""
_MAX_DUE: Final = 1000
"""Refusals of one namespace that wait to be written; above it, new ones are dropped until their
nodes try again."""

_Key = tuple[ClusterKey, str]
"""Cluster and name of a node."""
_Noted = tuple[AttestedNodeObject, Refusal]
"""A refusal, and the claim for which it was noted."""


class RefusalWriter:
    """The latest refusal of each node; any thread may call `note`, one `flush`."""

    def __init__(self, claims: ClaimStore, *, monotonic: Callable[[], float]) -> None:
        self._claims = claims
        self._monotonic = monotonic
        self._lock = Lock()
        self._due: dict[_Key, _Noted] = {}
        self._counts: Counter[str] = Counter()
        """How many of them each namespace has."""
        self._written: dict[_Key, float] = {}
        """When each node was written last, of the last ten seconds."""
        self._outbox = Outbox("refusal of a node not recorded", "namespace", monotonic)

    def note(self, node: AttestedNodeObject, refusal: Refusal) -> None:
        """Remember why a node was refused, to be written by a next `flush`; never raises.

        `node` is its claim, from a cache.
        """
        key = (node.cluster, node.node_name)
        with self._lock:
            if _is_recorded(node, refusal):
                self._forget(key)
                return
            if key not in self._due:
                if self._counts[node.cluster.namespace] >= _MAX_DUE:
                    return
                self._counts[node.cluster.namespace] += 1
            self._due[key] = (node, refusal)

    def flush(self) -> None:
        """Write the refusals that are due, a few of each namespace."""
        now = self._monotonic()
        self._written = {k: t for k, t in self._written.items() if now - t < _MIN_INTERVAL}
        with self._lock:
            due = {k: noted for k, noted in self._due.items() if k not in self._written}
        self._outbox.write(
            (key[0].namespace, partial(self._write, key, noted)) for key, noted in due.items()
        )

    def _write(self, key: _Key, noted: _Noted) -> None:
        node, refusal = noted
        try:
            current = self._claims.attested_node(*key)
            # Another claim is of a later certificate, so this refusal is over.
            if (
                current is not None
                and current.credential_ids == node.credential_ids
                and not _is_recorded(current, refusal)
            ):
                self._claims.replace_attested_node(current, current.replace(last_refusal=refusal))
                self._written[key] = self._monotonic()
                _log(node, refusal)
        except ClaimConflict:
            return  # a claim was written meanwhile: the next round reads it
        except AttestedNodeUnreadable:
            pass  # another program wrote it, and the node's next certificate replaces it
        with self._lock:
            if self._due.get(key) == noted:
                self._forget(key)

    def _forget(self, key: _Key) -> None:
        """Forget what is due for a node; the caller holds the lock."""
        if self._due.pop(key, None) is not None:
            self._counts[key[0].namespace] -= 1


def _is_recorded(node: AttestedNodeObject, refusal: Refusal) -> bool:
    """Return whether the claim has the same refusal, of the last hour."""
    last = node.last_refusal
    return (
        last is not None
        and last.replace(time=refusal.time, request=refusal.request) == refusal
        and refusal.time - last.time < _REPEAT
    )


def _log(node: AttestedNodeObject, refusal: Refusal) -> None:
    fields = node.cluster.log_fields() | {
        "node": node.node_name,
        "machine": node.machine_name,
        "reason": refusal.reason,
        "message": refusal.message,
        "csr": refusal.request,
        "notAfter": node.not_after.isoformat(),
        "alarm": True,
    }
    _logger.warning("certificate of a node not renewed", extra={"fields": fields})
