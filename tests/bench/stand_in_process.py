"""Starts the stand-in for API servers (`stand_in.py`) and runs storms against it."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import requests

from tests.bench.storm import AUTHORITY, DELAY, ENDORSEMENT, TIMEOUT, Phase, cpu_seconds, is_running
from tests.harness import kubeconfig, pki, process
from tests.harness.controlplane import HOST
from tests.harness.signer import Signer

WATCHES: Final = 3
"""Of one workload cluster."""


def await_readiness(signer: Signer) -> None:
    """Wait until the signer is ready. Asks seldom: each probe costs the signer CPU time."""
    process.wait_until(
        lambda: signer.ask("/readyz").ok, what="the signer is ready", seconds=TIMEOUT, poll=0.1
    )


class StandIn:
    """The stand-in process."""

    def __init__(  # noqa: PLR0913 - the last two are options
        self,
        directory: Path,
        stack: ExitStack,
        *,
        clusters: int,
        nodes: int,
        attested: int = 0,
        silent: int = 0,
    ) -> None:
        """Start it with a number of workload clusters.

        All clusters together have `nodes` that join, and `attested` Machines whose nodes have. The
        API servers of `silent` clusters take connections, and send nothing.
        """
        directory.mkdir()
        self._clusters = clusters - silent
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
            "workload_ports": [process.free_port() for _ in range(clusters)],
            "silent": silent,
            "nodes": nodes // clusters,
            "attested": attested // clusters,
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

    def state(self) -> Mapping[str, Any]:
        """Return what `GET /bench/result` shows."""
        response = self._session.get(f"{self.url}/bench/result", timeout=TIMEOUT)
        result: Mapping[str, Any] = response.json()
        return result

    def await_watches(self) -> None:
        """Wait until the signers watch all workload clusters that are not silent."""
        process.wait_until(
            lambda: self.state()["watches"] >= WATCHES * self._clusters,
            what="all clusters are watched",
            seconds=TIMEOUT,
        )

    def cut(self) -> None:
        """End the connections of all watches of workload clusters."""
        self._session.post(f"{self.url}/bench/cut", timeout=TIMEOUT).raise_for_status()

    def kubeconfig(self) -> str:
        """Return the signer's kubeconfig."""
        return kubeconfig.with_token(self.url, self._ca.read_bytes(), "token")

    def storm(self, name: str, *signers: Signer) -> Phase:
        """Run one phase to its end."""
        before = sum(cpu_seconds(signer.pid) for signer in signers)
        self._session.post(f"{self.url}/bench/{name}", timeout=TIMEOUT).raise_for_status()
        deadline = time.monotonic() + TIMEOUT
        while True:
            result = self.state()
            if len(result["latencies"]) == result["nodes"]:
                break
            assert time.monotonic() < deadline, f"{len(result['latencies'])} of {result['nodes']}"
            assert all(is_running(signer.pid) for signer in signers), "a signer has ended"
            time.sleep(0.25)
        return Phase(
            name=name,
            seconds=result["last"] - result["filed"],
            latencies=sorted(result["latencies"]),
            cpu=sum(cpu_seconds(signer.pid) for signer in signers) - before,
            calls=result["calls"],
        )


class NoFleet:
    """No cluster: the kubeconfig says everything."""

    @property
    def management(self) -> NoReturn:
        raise AssertionError
