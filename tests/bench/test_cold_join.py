"""What a cold join costs the node, by parts, with a real signer, API server and software TPM.

    make bench ARGS='-k cold_join'
    make bench ARGS='-k cold_join' COLD_JOINS=30

Wall time includes what the signer and the API server take on the same machine. CPU time is that of
the node's process alone.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pytest

from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import serving_all
from tests.harness.tpm import TrustDomain
from tests.harness.tpm_relay import Send, TpmRelay

JOINS = int(os.environ.get("COLD_JOINS", "10"))
ALL_COMMANDS = 10**6
PHASES = ("offer", "challenge", "answer", "certificate", "trial")
OUTSIDE = ("challenge", "certificate", "trial")
"""Phases in which the node waits for the API server and the signer."""

BARE = "pass"
IMPORTS = """
import gc
gc.disable()
import authenticator.cli
import authenticator.config.bootstrap_credential
import authenticator.enroll.exchange
import authenticator.kube.client
import authenticator.tpm.open_tpm
import common.formats.strict_yaml
gc.freeze()
"""
"""Without searches for garbage, as `authenticator.cli` runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one process."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Seconds of one cold join."""

    cost: Cost
    phases: dict[str, float]
    tpm: float
    commands: int


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Run control planes and a signer, for machines of the same vendor."""
    assets = provide.kubernetes(pins.newest(), provide.ALL)
    with (
        Fleet(tmp_path / "fleet", assets) as fleet,
        serving_all(fleet, tmp_path / "signer"),
        ExitStack() as stack,
    ):
        yield Machines(fleet, TrustDomain(tmp_path / "vendor"), tmp_path, stack)


def measured(start: Callable[[], subprocess.Popen[str]]) -> Cost:
    """Run a process to its end as client-go does; return what it cost."""
    began = time.perf_counter()
    process = start()
    assert process.stdout is not None
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    assert process.returncode == 0, process.stderr and process.stderr.read()
    if process.stderr is not None:
        process.stderr.close()
    return Cost(wall=wall, cpu=usage.ru_utime + usage.ru_stime)


def interpreter(code: str) -> Cost:
    """Run the interpreter of the tests, with its bytecode, which the launcher's start uses too."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return measured(
        lambda: subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
    )


def cold_join(node: Node) -> Join:
    """Join a node whose state directory is empty."""
    seconds: list[float] = []

    def timed(command: bytes, send: Send) -> bytes:
        began = time.perf_counter()
        response = send(command)
        seconds.append(time.perf_counter() - began)
        return response

    with TpmRelay(node.tpm) as relay:
        relay.on(None, timed, times=ALL_COMMANDS)
        behind = replace(node, settings={**node.settings, "tcti": relay.tcti})
        cost = measured(behind.start)
    record = json.loads((node.state / "runs.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    phases = {phase["name"]: phase["seconds"] for phase in record["phases"]}
    return Join(cost=cost, phases=phases, tpm=sum(seconds), commands=len(seconds))


def test_cold_join(machines: Machines) -> None:
    """Print medians. The first join warms caches and writes bytecode, so it does not count."""
    _, *joins = (cold_join(machines.registered()) for _ in range(JOINS + 1))
    bare = [interpreter(BARE) for _ in joins]
    imports = [interpreter(IMPORTS) for _ in joins]
    wall, cpu = (median(getattr(join.cost, name) for join in joins) for name in ("wall", "cpu"))
    start, start_cpu = (median(getattr(cost, name) for cost in bare) for name in ("wall", "cpu"))
    load, load_cpu = (median(getattr(cost, name) for cost in imports) for name in ("wall", "cpu"))
    tpm = median(join.tpm for join in joins)
    floor = tpm + median(sum(join.phases[name] for name in OUTSIDE) for join in joins)
    rows = {
        "cold join": (wall, cpu),
        "  interpreter (also in each of the other parts once)": (start, start_cpu),
        "  imports, without the interpreter": (load - start, load_cpu - start_cpu),
        **{f"  phase {name}": (median(j.phases[name] for j in joins), None) for name in PHASES},
        f"  of these: {joins[0].commands} TPM commands": (tpm, None),
    }
    lines = [
        f"{name:54} {seconds * 1e3:7.0f} {'' if cpu is None else round(cpu * 1e3):>7}"
        for name, (seconds, cpu) in rows.items()
    ]
    lines += [
        f"wall: {wall / floor:.2f} times TPM commands, challenge, certificate and trial together",
        f"CPU: {cpu / start_cpu:.1f} times a bare interpreter, {cpu / load_cpu:.2f} times imports",
    ]
    sys.stdout.write(f"\n\nCold join: medians of {JOINS}, ms\n{'':54} {'wall':>7} {'CPU':>7}\n")
    sys.stdout.write("\n".join(lines) + "\n")
