"""Certificates a second of two replicas against one, each with the same share of a CPU.

    make bench ARGS='-k scale_out'
    make bench ARGS='-k scale_out' STORM_NODES=1000 SCALE_OUT_SHARE=0.3

One stand-in process plays all servers, and needs less than a CPU. The replicas are limited so that
they never wait for it. Hashing gives replicas shares of different sizes, so the rate is that of the
first 80 % of the certificates: until then, each replica has requests.
"""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.bench.cpu_share import limited_to
from tests.bench.stand_in_process import NoFleet, StandIn
from tests.bench.storm import CPUS, NODES, Phase
from tests.harness.process import wait_until
from tests.harness.signer import Signer

CLUSTERS = int(os.environ.get("SCALE_OUT_CLUSTERS", "50"))
SHARE = float(os.environ.get("SCALE_OUT_SHARE", "0.25"))
"""Share of one CPU for each replica."""
PART = 0.8


def test_scale_out(tmp_path: Path) -> None:
    lines = [
        f"Scale-out: {NODES} nodes, {CLUSTERS} clusters, {SHARE} of one CPU each ({CPUS} CPUs)"
    ]
    rates = []
    for count in (1, 2):
        with ExitStack() as stack:
            phase, shares = storm(tmp_path / str(count), stack, count)
        rates.append(PART * NODES / phase.latencies[int(PART * NODES) - 1])
        lines.append(
            f"  {count} replica(s) with {shares} Clusters: {rates[-1]:.1f}/s;"
            f" all certificates {NODES / phase.seconds:.1f}/s,"
            f" {1000 * phase.cpu / NODES:.1f} ms CPU each"
        )
    lines.append(f"  ratio {rates[1] / rates[0]:.2f}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def storm(directory: Path, stack: ExitStack, count: int) -> tuple[Phase, list[int]]:
    """Run one storm of joins; return what it gave, and how many Clusters each replica has."""
    directory.mkdir()
    stand_in = StandIn(directory / "stand-in", stack, clusters=CLUSTERS, nodes=NODES)
    signers = [
        Signer(NoFleet(), directory / f"signer-{number}", kubeconfig=stand_in.kubeconfig())
        for number in range(count)
    ]
    for signer in signers:
        signer.start()
        stack.callback(signer.kill)

    def are_shared() -> bool:
        states = [signer.states() for signer in signers]
        served = [state for each in states for state in each.values()]
        return served == ["Served"] * CLUSTERS

    wait_until(are_shared, what="each Cluster is served by one replica", seconds=120)
    shares = [len(signer.states()) for signer in signers]
    with limited_to(SHARE, [signer.pid for signer in signers]):
        return stand_in.storm("join", *signers), shares
