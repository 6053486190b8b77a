"""VMware's simulator of vCenter Server, with the JSON form of its API."""

import base64
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import provide
from tests.fakes.vcenter import VirtualMachine

USERNAME, PASSWORD = "signer", "secret"
END_SECONDS = 30


@dataclass(frozen=True, slots=True)
class VcenterSimulator:
    """A running simulator."""

    server: str
    """HOST:PORT."""
    ca_file: Path


@contextmanager
def vcenter_simulator(machines: Sequence[VirtualMachine]) -> Iterator[VcenterSimulator]:
    """Run a simulator with the datacenters DC0 and DC1, and at least these VMs."""
    described = [
        {
            "uuid": machine.uuid,
            "folder": machine.folder,
            "certificates": None
            if machine.certificates is None
            else [base64.b64encode(der).decode() for der in machine.certificates],
        }
        for machine in machines
    ]
    with subprocess.Popen(
        [provide.tool("vcsim")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(described) + "\n")
            process.stdin.flush()
            server, ca_file = process.stdout.readline().split()
            yield VcenterSimulator(server, Path(ca_file))
        finally:
            process.stdin.close()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
