"""`status`: whether the signer runs, and counts of Clusters, nodes and keys."""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from signer.kinds.endorsement_key import EndorsementKeyObject
from signer.operator_cli.checks.signer_checks import read_signer, warn_of_signer
from signer.operator_cli.commands.fleet.nodes import node_state
from signer.operator_cli.errors import EXIT_OK
from signer.operator_cli.management.signer_state import SignerState
from signer.operator_cli.output import time_text
from signer.operator_cli.session import Session

_SOON: Final = timedelta(hours=24)


def run(session: Session) -> int:
    """Print the state of the signer and the counts."""
    snapshot, now = session.snapshot(), session.now
    opted_in = {c.key for c in snapshot.opted_in()}
    states = Counter(node_state(node, snapshot, now) for node in snapshot.nodes)
    signer = read_signer(session)
    soon = sum(now < node.not_after <= now + _SOON for node in snapshot.nodes)
    session.show_document(
        {
            "server": session.api.server,
            "user": session.api.username,
            "signer": _signer_word(signer),
            "signerReplicas": len(signer.live),
            "signerLastRenewal": time_text(signer.last_renewal),
            "clusters": {"total": len(snapshot.clusters), "optedIn": len(opted_in)},
            "machinesOfOptedInClusters": sum(m.cluster in opted_in for m in snapshot.machines),
            "nodes": {"total": len(snapshot.nodes), **dict(sorted(states.items()))},
            "certificatesExpiringWithin24h": soon,
            "endorsementKeys": _count_keys(snapshot.keys.values()),
        }
    )
    warn_of_signer(session, signer, snapshot)
    return EXIT_OK


def _signer_word(signer: SignerState) -> str:
    if signer.problem:
        return "Unknown"
    return "Running" if signer.has_replica() else "NotRunning"


def _count_keys(keys: Iterable[EndorsementKeyObject]) -> dict[str, int]:
    all_keys = list(keys)
    return {
        "total": len(all_keys),
        "registered": sum(bool(k.registered_for) for k in all_keys),
        "heldByNode": sum(k.held_by is not None and not k.banned for k in all_keys),
        "banned": sum(k.banned is not None for k in all_keys),
    }
