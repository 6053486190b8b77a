"""What silent API servers, and a cut of all connections, cost the healthy clusters.

make bench ARGS='-k dead' DEAD_CLUSTERS=50x500
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.bench.idle import status
from tests.bench.stand_in_process import WATCHES, NoFleet, StandIn, await_readiness
from tests.bench.storm import TIMEOUT, cpu_seconds
from tests.harness import process
from tests.harness.signer import Signer

SILENT, CLUSTERS = (int(n) for n in os.environ.get("DEAD_CLUSTERS", "20x100").split("x"))
CUTS: Final = 3


@pytest.mark.timeout(4 * TIMEOUT)
@pytest.mark.parametrize("silent", [0, SILENT])
def test_dead_clusters(tmp_path: Path, silent: int) -> None:
    with ExitStack() as stack:
        stand_in = StandIn(tmp_path / "stand-in", stack, clusters=CLUSTERS, nodes=0, silent=silent)
        signer = Signer(NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
        began = time.monotonic()
        with signer:
            await_readiness(signer)
            stand_in.await_watches()
            started = time.monotonic() - began
            cuts = [_cut(stand_in, (CLUSTERS - silent) * WATCHES) for _ in range(CUTS)]
            cpu, threads = cpu_seconds(signer.pid), status(signer.pid, "Threads")
            ended = time.monotonic()
        stopped = time.monotonic() - ended
    sys.stdout.write(
        f"\nDead, {silent} of {CLUSTERS} clusters silent: the others watched after {started:.1f} s,"
        f" after cuts again after {', '.join(f'{cut:.1f}' for cut in cuts)} s; {cpu:.1f} s CPU,"
        f" {threads} threads; SIGTERM {stopped:.1f} s\n"
    )
    assert stopped < 10.0


def _cut(stand_in: StandIn, watches: int) -> float:
    """Cut all connections; return the seconds until all watches are back."""
    stand_in.cut()
    began = time.monotonic()
    process.wait_until(
        lambda: stand_in.state()["watches"] >= watches,
        what="all clusters are watched again",
        seconds=TIMEOUT,
        poll=0.1,
    )
    return time.monotonic() - began
