"""Tables and JSON of the results."""

from collections.abc import Mapping, Sequence
from typing import Final

from tests.bench.simulation.calculation import averages, limits
from tests.bench.simulation.costs import Costs, describe
from tests.bench.simulation.fleet import Result, Scenario
from tests.bench.simulation.memory import bytes_of_machine
from tests.bench.simulation.queues import MINUTE, percentile
from tests.bench.simulation.scenarios import LIFETIMES

_UNITS: Final = {
    "asked": "exchanges begun",
    "issued": "of these, issued",
    "expired": "of these, given up; the node begins another",
    "pending": "of these, not ended at the end",
    "lost": "nodes whose certificate ended: they need a bootstrap token",
    "most_due": "most nodes that needed a certificate at once",
    "certificates": "certificates a second, busiest minute",
    "writes": "writes a second to the management cluster, busiest minute",
    "signer": "share of its core that the busiest signer used, busiest minute",
    "management": "share of the management cluster's cores for claims, busiest minute",
    "p50": "seconds from the begin of an exchange to its certificate, median",
    "p99": "the same, 99th percentile",
    "recovered": "seconds from the end of the outage until 0.1 % of the nodes are due",
}
"""The meaning of each figure."""

Figures = Mapping[str, float | None]


def figures(result: Result) -> Figures:
    """Return the figures of a scenario."""
    values = (
        result.asked,
        result.issued,
        result.expired,
        result.pending,
        result.lost,
        result.most_due,
        max(result.certificates.values(), default=0) / MINUTE,
        max(result.writes.values(), default=0) / MINUTE,
        max(server.peak_load() for server in result.signers),
        result.management.peak_load(),
        percentile(result.latencies, 0.5),
        percentile(result.latencies, 0.99),
        result.recovered,
    )
    return dict(zip(_UNITS, values, strict=True))


def table(scenario: Scenario, values: Figures) -> str:
    """Return the table of one scenario."""
    title = (
        f"{scenario.name}: {scenario.nodes:,} nodes, {scenario.clusters:,} clusters,"
        f" {scenario.signers} signers, {scenario.duration / 3600:.1f} h"
    )
    shown = ((name, value) for name, value in values.items() if value is not None)
    return "\n".join([title, *(f"  {value:12,.2f}  {_UNITS[name]}" for name, value in shown)])


def calculation(nodes: int, costs: Costs, cores: float) -> str:
    """Return the costs, the averages and the limits by lifetime."""
    machine = bytes_of_machine()
    lines = ["Costs (seconds; sources in costs.py)", *(f"  {line}" for line in describe(costs))]
    lines += [f"  {'bytes of a Machine':18} {machine}", f"Averages of {nodes:,} nodes that renew"]
    lines.append(_row("lifetime", ["renewals/s", "writes/s", "signer cores", "server cores"]))
    for name, lifetime in LIFETIMES.items():
        mean = averages(nodes, lifetime, costs)
        values = (mean.renewals, mean.writes, mean.signer, mean.management)
        lines.append(_row(name, [f"{value:.2f}" for value in values]))
    lines.append(f"Nodes that fit (claims: {cores:g} cores of the management cluster)")
    lines.append(_row("lifetime", ["memory", "one tenant", "one signer", "claims"]))
    for name, lifetime in LIFETIMES.items():
        most = limits(lifetime, costs, machine, cores)
        counts = (most.memory, most.memory_of_tenant, most.signer, most.management)
        lines.append(_row(name, [f"{count:,}" for count in counts]))
    return "\n".join(lines)


def _row(name: str, cells: Sequence[str]) -> str:
    return f"  {name:10}" + "".join(f"{cell:>14}" for cell in cells)
