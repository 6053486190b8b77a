"""How long the signer takes until it is ready, by the number of Machines and clusters.

    make bench ARGS='-k growth'
    make bench ARGS='-k growth' GROWTH=10x1,10000x100

Each Machine has the fields and the size that Cluster API gives it, and belongs to a node that has
attested: an AttestedNode and an EndorsementKey. One lean process plays all API servers
(`stand_in.py`). The share of CPU time that the signer needs shows how much of the time is its own.
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.bench.stand_in_process import NoFleet, StandIn, await_readiness
from tests.bench.storm import TIMEOUT, cpu_seconds, peak_mebibytes
from tests.harness.signer import Signer

SIZES: Final = [
    tuple(map(int, size.split("x")))
    for size in os.environ.get("GROWTH", "10x1,1000x10,10000x100,10000x500").split(",")
]
"""Pairs of Machines in all clusters together, and clusters."""


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(("machines", "clusters"), SIZES)
def test_growth_until_the_signer_is_ready(tmp_path: Path, machines: int, clusters: int) -> None:
    with ExitStack() as stack:
        stand_in = StandIn(
            tmp_path / "stand-in", stack, clusters=clusters, nodes=0, attested=machines
        )
        signer = Signer(NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
        began = time.monotonic()
        stack.enter_context(signer)
        await_readiness(signer)
        ready, cpu = time.monotonic() - began, cpu_seconds(signer.pid)
        stand_in.await_watches()
        watched = time.monotonic() - began
        sys.stdout.write(
            f"\nGrowth, {machines} Machines in {clusters} clusters: ready after {ready:.1f} s"
            f" ({cpu:.1f} s CPU), all clusters watched after {watched:.1f} s"
            f" ({cpu_seconds(signer.pid):.1f} s CPU), peak {peak_mebibytes(signer.pid):.0f} MiB\n"
        )
