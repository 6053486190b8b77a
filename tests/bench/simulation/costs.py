"""What one exchange costs each part: the figures that docs/performance.md records."""

from dataclasses import dataclass, fields
from typing import Final

from tests.bench.simulation.record import quantity, recorded_table

_STORM: Final = recorded_table("Stand-in form:")
_OTHERS: Final = recorded_table("The other costs:")


def _other(name: str) -> float:
    return quantity(_OTHERS[name]["value"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of CPU, where nothing else is said."""

    join: float = quantity(_STORM["join"]["CPU"])
    """Of the signer."""
    renewal: float = quantity(_STORM["renewal"]["CPU"])
    """Of the signer."""
    offer_share: float = _other("the offer's share of that")
    """Of `join` and `renewal`: one of seven or eight calls, a verification, MakeCredential."""
    discarded_offer: float = _other("signer: an offer that its node has discarded")
    """To parse and ignore it."""
    claims_of_join: float = _other("management cluster: claims of a join")
    """Of the API server and etcd."""
    claims_of_renewal: float = _other("management cluster: claims of a renewal")
    node: float = _other("node: from the challenge to the answer")
    """Seconds."""
    network: float = _other("a call to an API server")
    """Seconds."""


WRITES_OF_JOIN: Final = 3
"""To the management cluster: EndorsementKey twice, AttestedNode once (docs/performance.md)."""
WRITES_OF_RENEWAL: Final = 2


def describe(costs: Costs) -> list[str]:
    """Return one line for each cost."""
    return [f"{field.name:18} {getattr(costs, field.name):g}" for field in fields(costs)]
