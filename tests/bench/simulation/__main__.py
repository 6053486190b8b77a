"""make simulate: what happens to a large fleet, by events on measured costs."""

import argparse
import json
import sys
import time
from dataclasses import replace

from tests.bench.simulation import report
from tests.bench.simulation.costs import Costs
from tests.bench.simulation.fleet import Fleet, Scenario
from tests.bench.simulation.scenarios import scenarios


def main() -> None:
    """Run the scenarios, and print their tables or one JSON document."""
    chosen = _parse()
    selected = [scenario for scenario in scenarios() if chosen.only in scenario.name]
    if chosen.list:
        sys.stdout.writelines(f"{scenario.name}\n" for scenario in selected)
        return
    costs = Costs()
    if not chosen.json:
        text = report.calculation(chosen.nodes, costs, chosen.management_cores)
        sys.stdout.write(f"{text}\n\n")
    documents = {}
    for scenario in selected:
        sized = _sized(scenario, chosen)
        values = report.figures(Fleet(sized, costs, chosen.seed).run(_Progress(scenario.name)))
        documents[scenario.name] = values
        if not chosen.json:
            sys.stdout.write(f"{report.table(sized, values)}\n\n")
    if chosen.json:
        sys.stdout.write(json.dumps(documents, indent=2) + "\n")


class _Progress:
    """Writes the share that is done to stderr, at most once a second."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._written = time.monotonic()

    def __call__(self, share: float) -> None:
        """Write the share."""
        if time.monotonic() - self._written > 1:
            self._written = time.monotonic()
            sys.stderr.write(f"{self._name}: {100 * share:.0f} %\n")


def _sized(scenario: Scenario, chosen: argparse.Namespace) -> Scenario:
    """Return the scenario with the fleet that was asked for; one token has a fleet of its own."""
    sized = replace(scenario, signers=chosen.signers, management_cores=chosen.management_cores)
    if scenario.one_token:
        return sized
    return replace(sized, nodes=chosen.nodes, clusters=chosen.clusters)


def _parse() -> argparse.Namespace:
    fleet = Scenario(name="", lifetime=0, duration=0)
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.simulation",
        description="Simulate joins, renewals and outages of a large fleet on measured costs.",
    )
    parser.add_argument("only", nargs="?", default="", help="run scenarios with this in their name")
    parser.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers (1)")
    parser.add_argument("--nodes", type=int, default=fleet.nodes, help="Machines (100000)")
    parser.add_argument("--clusters", type=int, default=fleet.clusters, help="Clusters (2000)")
    parser.add_argument(
        "--signers", type=int, default=fleet.signers, help="replicas that share the Clusters (2)"
    )
    parser.add_argument(
        "--management-cores",
        type=float,
        default=fleet.management_cores,
        help="cores of the management cluster's API server and etcd (4)",
    )
    return parser.parse_args()


main()
