"""Many nodes ask for a certificate at once: certificates a second, latency, CPU and API calls.

    make bench ARGS='-k storm'
    make bench ARGS='-k stand_in' STORM_NODES=2000 STORM_AUTHORITY=ec

The nodes have software evidence that the signer verifies. One form runs against a stand-in for the
API servers (`stand_in.py`), so that the signer's own capacity shows. The other runs against real
ones. In the same run, kube-controller-manager signs as many plain requests.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest
import requests

from tests.bench.storm import (
    AUTHORITY,
    CLUSTERS,
    DELAY,
    ENDORSEMENT,
    NODES,
    SETTLE,
    TIMEOUT,
    Phase,
    cpu_seconds,
    is_running,
    peak_mebibytes,
    report,
)
from tests.bench.storm_servers import RealServers
from tests.harness import kubeconfig, pki, process
from tests.harness.controlplane import HOST
from tests.harness.signer import Signer
from tests.harness.workload import BOOTSTRAPPERS

RAISED = ("--kube-api-qps=1000", "--kube-api-burst=2000")
MAX_CALLS = {"join": 6, "renew": 5}
"""API calls for a certificate. A few more for a storm are those for Secrets."""


class StandIn:
    """The stand-in process."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        directory.mkdir()
        authority = pki.Authority.make("stand-in", pki.ec_key())
        self._ca = directory / "ca.crt"
        self._ca.write_bytes(authority.pair.certificate)
        pair = authority.server(HOST)
        files = [directory / "server.crt", directory / "server.key"]
        for file, content in zip(files, (pair.certificate, pair.key), strict=True):
            file.write_bytes(content)
        port = process.free_port()
        self.url = f"https://{HOST}:{port}"
        config = {
            "pair": [str(file) for file in files],
            "ca": str(self._ca),
            "management_port": port,
            "workload_ports": [process.free_port() for _ in range(CLUSTERS)],
            "nodes": NODES // CLUSTERS,
            "authority": AUTHORITY,
            "endorsement": ENDORSEMENT,
            "delay": DELAY,
        }
        (directory / "config.json").write_text(json.dumps(config))
        argv = [sys.executable, "-m", "tests.bench.stand_in", str(directory)]
        log = directory / "stand-in.log"
        running = stack.enter_context(process.running(argv, log=log))
        ready = (directory / "ready").exists
        process.wait_until_ready(
            running, ready, what="the stand-in listens", log=log, seconds=TIMEOUT
        )
        self.pid = running.pid
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = str(self._ca)

    def kubeconfig(self) -> str:
        """Return the signer's kubeconfig."""
        return kubeconfig.with_token(self.url, self._ca.read_bytes(), "token")

    def storm(self, name: str, signer: Signer) -> Phase:
        """Run one phase to its end."""
        before = cpu_seconds(signer.pid)
        self._session.post(f"{self.url}/bench/{name}", timeout=TIMEOUT).raise_for_status()
        deadline = time.monotonic() + TIMEOUT
        while True:
            result = self._session.get(f"{self.url}/bench/result", timeout=TIMEOUT).json()
            if len(result["latencies"]) == result["nodes"]:
                break
            assert time.monotonic() < deadline, f"{len(result['latencies'])} of {result['nodes']}"
            assert is_running(signer.pid), "the signer has ended"
            time.sleep(0.25)
        return Phase(
            name=name,
            seconds=result["last"] - result["filed"],
            latencies=sorted(result["latencies"]),
            cpu=cpu_seconds(signer.pid) - before,
            calls=result["calls"],
        )


class _NoFleet:
    """No cluster: the kubeconfig says everything."""

    @property
    def management(self) -> NoReturn:
        raise AssertionError


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stop everything that was started."""
    with ExitStack() as started:
        yield started


def test_storm_against_a_stand_in(tmp_path: Path, stack: ExitStack) -> None:
    """A join takes 6 API calls, and a renewal 5."""
    stand_in = StandIn(tmp_path / "stand-in", stack)
    signer = Signer(_NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
    stack.enter_context(signer)
    signer.wait_until_ready()
    time.sleep(SETTLE)
    phases = [stand_in.storm(name, signer) for name in MAX_CALLS]
    title = f"{CLUSTERS} cluster(s) on stand-in servers {1000 * DELAY:.0f} ms away"
    report(title, phases, peak_mebibytes(signer.pid))
    for phase in phases:
        calls = sum(phase.calls.values()) / len(phase.latencies)
        assert calls <= 1.05 * MAX_CALLS[phase.name] + 10 / NODES


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
