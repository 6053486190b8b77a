"""What one exchange costs each part, with the source of each figure."""

from dataclasses import dataclass, fields
from typing import Final

MILLISECOND: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of CPU, where nothing else is said."""

    join: float = 12.9 * MILLISECOND
    """Of the signer: storm of 1,000 joins on stand-in servers, idle machine."""
    renewal: float = 10.9 * MILLISECOND
    """Of the signer: the same nodes again."""
    offer_share: float = 0.3
    """Of `join` and `renewal`: one of five or six calls, the first verification, MakeCredential."""
    discarded_offer: float = 0.4 * MILLISECOND
    """Of the signer, for an offer that is older than `MAX_OFFER_AGE`: 0.36 to 0.42 ms to parse and
    ignore one, where a challenge without its write took 1.55 to 1.72 ms (busy machine)."""
    claims_of_join: float = 17.5 * MILLISECOND
    """Of the management cluster's API server and etcd: `make bench ARGS='-k claim_writes'`, on a
    busy machine (load 14 on 2 CPUs), so rather too high."""
    claims_of_renewal: float = 13.6 * MILLISECOND
    """Of the same, in the same run."""
    node: float = 1.0
    """Seconds in which a node answers a challenge: a hardware TPM, assumed."""
    network: float = 0.05
    """Seconds of a call to an API server, assumed."""


WRITES_OF_JOIN: Final = 3
"""To the management cluster: EndorsementKey twice, AttestedNode once (docs/performance.md)."""
WRITES_OF_RENEWAL: Final = 2


def describe(costs: Costs) -> list[str]:
    """Return one line for each cost."""
    return [f"{field.name:18} {getattr(costs, field.name):g}" for field in fields(costs)]
