"""What idle workload clusters cost the signer: threads, connections, memory, CPU time, requests.

    make bench ARGS='-k idle'
    make bench ARGS='-k idle' IDLE_CLUSTERS=10,100,500 IDLE_SECONDS=300

One lean process plays all API servers (`stand_in.py`). Like real ones, it sends a bookmark to each
watch every minute, and ends each watch after its `timeoutSeconds`.
"""

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.bench.idle import SECONDS, SETTLE, status
from tests.bench.stand_in_process import NoFleet, StandIn
from tests.bench.storm import TIMEOUT, cpu_seconds
from tests.harness.signer import Signer

CLUSTERS: Final = [int(n) for n in os.environ.get("IDLE_CLUSTERS", "10,100").split(",")]
MAX_THREADS: Final = 110
"""Besides those of the watches; a round of maintenance or a Secret may have one at the moment."""
MAX_CONNECTIONS: Final = 3
"""Of one workload cluster."""


@pytest.mark.timeout(TIMEOUT + SECONDS + SETTLE)
@pytest.mark.parametrize("clusters", CLUSTERS)
def test_idle_clusters_cost_few_threads_and_connections(tmp_path: Path, clusters: int) -> None:
    with ExitStack() as stack:
        stand_in = StandIn(tmp_path / "stand-in", stack, clusters=clusters, nodes=0)
        signer = Signer(NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
        stack.enter_context(signer)
        began = time.monotonic()
        stand_in.await_watches()
        started = time.monotonic() - began
        time.sleep(SETTLE)
        before, cpu = stand_in.state(), cpu_seconds(signer.pid)
        time.sleep(SECONDS)
        used, after = cpu_seconds(signer.pid) - cpu, stand_in.state()
        calls = {name: n - before["calls"].get(name, 0) for name, n in after["calls"].items()}
        requests = ", ".join(f"{name} {n / SECONDS:.2f}/s" for name, n in calls.items() if n)
        threads = status(signer.pid, "Threads")
        sys.stdout.write(
            f"\nIdle, {clusters} clusters: watched after {started:.1f} s, {threads} threads,"
            f" {after['connections'] / clusters:.2f} connections a cluster,"
            f" {status(signer.pid, 'VmRSS') / 1024:.0f} MiB"
            f" (peak {status(signer.pid, 'VmHWM') / 1024:.0f}),"
            f" {100 * used / SECONDS:.1f} % CPU; {requests or 'no requests'}\n"
        )
    assert threads <= MAX_THREADS + MAX_CONNECTIONS * clusters
    assert after["connections"] <= MAX_CONNECTIONS * clusters + 1
