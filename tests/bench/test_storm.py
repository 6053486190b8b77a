"""Many nodes ask for a certificate at once: certificates a second, latency, CPU and API calls.

    make bench ARGS='-k storm'
    make bench ARGS='-k stand_in' STORM_NODES=2000 STORM_AUTHORITY=ec

The nodes have software evidence that the signer verifies. One form runs against a stand-in for the
API servers (`stand_in.py`), so that the signer's own capacity shows. The other runs against real
ones. In the same run, kube-controller-manager signs as many plain requests.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.stand_in_process import NoFleet, StandIn
from tests.bench.storm import CLUSTERS, DELAY, NODES, SETTLE, peak_mebibytes, report
from tests.bench.storm_servers import RealServers
from tests.harness.signer import Signer
from tests.harness.workload import BOOTSTRAPPERS

RAISED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
MAX_CALLS = {"join": 7, "renew": 6}
"""API calls for a certificate. A few more for a storm are those for Secrets."""
REPORT_CALLS = {
    "GET machines",
    "PATCH machines/status",
    "PATCH kubeletattestationpolicies/status",
    "POST events",
}
"""Another thread reports on ten Machines a second at most, whatever the rate of certificates."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stop everything that was started."""
    with ExitStack() as started:
        yield started


def test_storm_against_a_stand_in(tmp_path: Path, stack: ExitStack) -> None:
    """A join takes 7 API calls, and a renewal 6."""
    stand_in = StandIn(tmp_path / "stand-in", stack, clusters=CLUSTERS, nodes=NODES)
    signer = Signer(NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
    stack.enter_context(signer)
    signer.wait_until_ready()
    time.sleep(SETTLE)
    phases = [stand_in.storm(name, signer) for name in MAX_CALLS]
    title = f"{CLUSTERS} cluster(s) on stand-in servers {1000 * DELAY:.0f} ms away"
    report(title, phases, peak_mebibytes(signer.pid))
    for phase in phases:
        calls = sum(n for name, n in phase.calls.items() if name not in REPORT_CALLS)
        assert calls <= 1.05 * MAX_CALLS[phase.name] * len(phase.latencies) + 10


def test_storm_against_real_servers(tmp_path: Path, stack: ExitStack) -> None:
    """Compare with kube-controller-manager, with its default limits and with raised ones."""
    servers = RealServers(tmp_path / "servers", stack)
    signer = Signer(servers, tmp_path / "signer", policy={"bootstrapGroups": [BOOTSTRAPPERS]})
    with signer:
        signer.wait_until_ready()
        phases = [servers.storm(name, signer) for name in MAX_CALLS]
        peak = peak_mebibytes(signer.pid)
    phases.append(servers.controller_manager("default limits"))
    phases.append(servers.controller_manager("raised limits", *RAISED))
    report("one cluster on real API servers", phases, peak)
