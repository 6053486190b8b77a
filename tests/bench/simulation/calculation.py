"""What a fleet costs on average, by calculation: which part is full first."""

from dataclasses import dataclass
from typing import Final

from authenticator.state.credential import RENEWAL_FRACTION, RENEWAL_SPREAD
from signer.fairness.memory_budget import PER_TENANT, TOTAL
from tests.bench.simulation.costs import WRITES_OF_RENEWAL, Costs

MEAN_RENEWAL: Final = RENEWAL_FRACTION - RENEWAL_SPREAD / 2
"""The share of a lifetime after which a node renews, on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Of a fleet that only renews."""

    renewals: float
    """A second."""
    writes: float
    """A second, to the management cluster."""
    signer: float
    """Share of one core that the signers need together."""
    management: float
    """Share of one core that the management cluster's API server and etcd need for the claims."""


def averages(nodes: int, lifetime: int, costs: Costs) -> Averages:
    """Return what the renewals of a fleet cost."""
    renewals = nodes / (MEAN_RENEWAL * lifetime)
    return Averages(
        renewals=renewals,
        writes=renewals * WRITES_OF_RENEWAL,
        signer=renewals * costs.renewal,
        management=renewals * costs.claims_of_renewal,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many nodes fit, at most, for each reason."""

    memory: int
    """Machines in the caches of one signer."""
    memory_of_tenant: int
    """Machines of one namespace."""
    signer: int
    """Nodes whose renewals one core of a signer serves."""
    management: int
    """Nodes whose claims the management cluster's cores write."""


def limits(lifetime: int, costs: Costs, machine: int, cores: float) -> Limits:
    """Return the limits for a lifetime; `machine` is the bytes that a Machine takes."""
    period = MEAN_RENEWAL * lifetime
    return Limits(
        memory=TOTAL // machine,
        memory_of_tenant=PER_TENANT // machine,
        signer=int(period / costs.renewal),
        management=int(period * cores / costs.claims_of_renewal),
    )
