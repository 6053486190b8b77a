"""The largest fleet that one machine can hold, beside what the simulation predicts for it.

    make bench ARGS='-k largest_fleet'
    make bench ARGS='-k largest_fleet' LARGEST=35600x500,20000x2000

One lean process plays all API servers (`stand_in.py`). Each Machine belongs to a node that has
attested. One more node in each cluster joins and renews in a storm, so every cluster is shown to
work. The prediction is that of `make simulate`: bytes that the signer counts for a Machine, and CPU
time of a certificate.
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from signer.fairness.memory_budget import TOTAL
from tests.bench.idle import SECONDS, SETTLE, status
from tests.bench.simulation.costs import Costs
from tests.bench.simulation.memory import bytes_of_machine
from tests.bench.stand_in_process import NoFleet, StandIn, await_readiness
from tests.bench.storm import TIMEOUT, cpu_seconds, peak_mebibytes
from tests.harness.signer import Signer

FLEETS: Final = [
    tuple(map(int, fleet.split("x"))) for fleet in os.environ.get("LARGEST", "2000x100").split(",")
]
"""Pairs of Machines in all clusters together, and clusters."""


@pytest.mark.timeout(4 * TIMEOUT + SECONDS + SETTLE)
@pytest.mark.parametrize(("machines", "clusters"), FLEETS)
def test_largest_fleet(tmp_path: Path, machines: int, clusters: int) -> None:
    with ExitStack() as stack:
        stand_in = StandIn(
            tmp_path / "stand-in", stack, clusters=clusters, nodes=clusters, attested=machines
        )
        signer = Signer(NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
        began = time.monotonic()
        stack.enter_context(signer)
        await_readiness(signer)
        lines = [
            f"Largest fleet, {machines} Machines in {clusters} clusters",
            f"  ready after {_since(began, signer)}",
        ]
        stand_in.await_watches()
        lines += [
            f"  all clusters watched after {_since(began, signer)}",
            _memory(signer, machines // clusters + 1),
            _idle(signer, stand_in, clusters),
        ]
        costs = Costs()
        for name, predicted in (("join", costs.join), ("renew", costs.renewal)):
            row = stand_in.storm(name, signer).row()
            lines.append(f"{row}, predicted {1000 * predicted:.1f} ms CPU")
        lines.append(f"  peak {peak_mebibytes(signer.pid):.0f} MiB")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _since(began: float, signer: Signer) -> str:
    return f"{time.monotonic() - began:.1f} s, {cpu_seconds(signer.pid):.1f} s CPU"


def _memory(signer: Signer, machines: int) -> str:
    """Return what the signer counts for each Machine of the largest namespace."""
    used = signer.metric("node_attestation_cache_bytes")
    assert used is not None
    predicted = bytes_of_machine(with_references=False)
    return (
        f"  {used / machines:.0f} bytes a Machine, predicted {predicted};"
        f" the budget is full at {TOTAL * machines / used:.0f} Machines"
    )


def _idle(signer: Signer, stand_in: StandIn, clusters: int) -> str:
    time.sleep(SETTLE)
    cpu = cpu_seconds(signer.pid)
    time.sleep(SECONDS)
    used = cpu_seconds(signer.pid) - cpu
    return (
        f"  idle: {100 * used / SECONDS:.1f} % CPU, {status(signer.pid, 'Threads')} threads,"
        f" {stand_in.state()['connections'] / clusters:.2f} connections a cluster,"
        f" {status(signer.pid, 'VmRSS') / 1024:.0f} MiB"
    )
