"""Many nodes ask for a certificate at once: certificates a second, latency, CPU and API calls.

    make bench ARGS=tests/bench/test_storm.py
    STORM_NODES=2000 make bench ARGS=tests/bench/test_storm.py

The nodes have software evidence that the signer verifies. The first form runs against a stand-in
for the API servers (`stand_in.py`), so that the signer's own capacity shows. CPU time is compared,
since wall time depends on what else the machine does.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import NoReturn

import pytest
import requests

from tests.harness import kubeconfig, pki, process
from tests.harness.controlplane import HOST
from tests.harness.signer import Signer

NODES = int(os.environ.get("STORM_NODES", "500"))
CLUSTERS = int(os.environ.get("STORM_CLUSTERS", "1"))
AUTHORITY = os.environ.get("STORM_AUTHORITY", "rsa")
ENDORSEMENT = os.environ.get("STORM_ENDORSEMENT", "L-2")
DELAY = float(os.environ.get("STORM_DELAY", "0"))
"""Seconds that a stand-in server waits before it answers, as a distant one."""
TIMEOUT = int(os.environ.get("STORM_TIMEOUT", "600"))
CPUS = os.cpu_count()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one storm gave."""

    name: str
    certificates: int
    seconds: float
    latencies: list[float]
    signer_cpu: float
    calls: Mapping[str, int]

    @property
    def calls_each(self) -> float:
        """API calls for each certificate, without lists and watches."""
        return sum(self.calls.values()) / self.certificates

    @property
    def milliseconds_each(self) -> float:
        """CPU time of the signer for each certificate."""
        return 1000 * self.signer_cpu / self.certificates


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
            assert signer.is_running(), "the signer ended"
            time.sleep(0.25)
        return Phase(
            name=name,
            certificates=result["nodes"],
            seconds=result["last"] - result["filed"],
            latencies=sorted(result["latencies"]),
            signer_cpu=cpu_seconds(signer.pid) - before,
            calls=result["calls"],
        )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process since its start, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stop everything that was started."""
    with ExitStack() as started:
        yield started


def test_storm_against_a_stand_in(tmp_path: Path, stack: ExitStack) -> None:
    """A join takes 6 API calls at most, and a renewal 5."""
    stand_in = StandIn(tmp_path / "stand-in", stack)
    signer = Signer(_NoFleet(), tmp_path / "signer", kubeconfig=stand_in.kubeconfig())
    stack.enter_context(signer)
    signer.wait_until_ready()
    time.sleep(float(os.environ.get("STORM_SETTLE", "3")))
    phases = [stand_in.storm(name, signer) for name in ("join", "renew")]
    report("stand-in servers", phases, signer.pid)


class _NoFleet:
    """No cluster: the kubeconfig says everything."""

    @property
    def management(self) -> NoReturn:
        raise AssertionError


def report(title: str, phases: list[Phase], pid: int) -> None:
    """Print the table."""
    lines = [
        f"Storm of {NODES} nodes in {CLUSTERS} cluster(s), {title}",
        f"  servers {1000 * DELAY:.0f} ms away; CA {AUTHORITY}, EK {ENDORSEMENT}",
        f"  Python {platform.python_version()}, {CPUS} CPUs",
        f"  {'':12}{'1/s':>8}{'p50':>9}{'p95':>9}{'p99':>9}{'CPU each':>11}{'calls each':>12}",
    ]
    for phase in phases:
        p50, p95, p99 = (quantiles(phase.latencies, n=100)[n] for n in (49, 94, 98))
        lines.append(
            f"  {phase.name:12}{phase.certificates / phase.seconds:>8.1f}{p50:>8.2f}s{p95:>8.2f}s"
            f"{p99:>8.2f}s{phase.milliseconds_each:>8.1f} ms{phase.calls_each:>12.2f}"
        )
        calls = ", ".join(f"{name} {n}" for name, n in sorted(phase.calls.items()))
        lines.append(f"    {calls}")
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [peak] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    lines.append(f"  peak memory {int(peak.split()[1]) / 1024:.0f} MiB")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
