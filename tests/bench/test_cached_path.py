"""What the kubelet pays for a credential in the cache, and what others would make it pay.

    make bench ARGS='-k cached_path'
    make bench ARGS='-k cached_path' PEER_EXEC_PLUGIN='/path/to/plugin --its-flags'

A peer gets the same KUBERNETES_EXEC_INFO as the launcher, and has to have something in its cache.
"""

import base64
import fcntl
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from authenticator.config.exec_info import EXEC_INFO_ENV
from authenticator.model import KeyPair
from authenticator.state.credential import Credential, encode, encode_exec_credential
from tests.bench import launchers, reference_plugins
from tests.bench.measure import Program, medians
from tests.bench.simulation.node import renewal_delay
from tests.harness import pki

TURNS = 300
FEW_TURNS = 60
MOST_TIMES_CACHED = 1.5
"""The time of a call whose renewal is due, divided by that of one whose renewal is not."""

MOST_TIMES_WITHOUT_BYTECODE = 2.0
"""The same for a launcher without bytecode, in a directory that no call can write to."""

MOST_MEBIBYTES = 0.6 * 24.6
"""The memory of a known plugin in Go, times the goal."""

HOUR = 3600
API_VERSION = "client.authentication.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A state directory with a credential for one call."""

    directory: Path
    environment: dict[str, str]

    @property
    def printed(self) -> Path:
        """The file with only the ExecCredential, which the Go plugins of this repository read."""
        return self.directory.with_suffix(".json")

    def call(self, launcher: Path, name: str) -> Program:
        """Return the call to which the credential belongs."""
        argv = (str(launcher), f"--state-dir={self.directory}")
        mark = self.directory / "served"
        return Program(name=name, argv=argv, environment=self.environment, mark=mark)


def cache(directory: Path, *, received: int) -> Cache:
    """Put a credential for eight hours into a new state directory."""
    authority = pki.Authority.make("cluster", pki.ec_key())
    node = authority.client("system:node:worker-1", "system:nodes")
    exec_info = os.environ.get(EXEC_INFO_ENV) or _exec_info(authority)
    credential = Credential(
        node_name="worker-1",
        key_pair=KeyPair(certificate=node.certificate, key=node.key),
        not_before=received,
        not_after=received + 8 * HOUR,
        received_at=received,
        exec_info=os.fsencode(exec_info),
        arguments=(f"--state-dir={directory}",),
        api_version=API_VERSION,
        provider_id="test:///1",
    )
    directory.mkdir(mode=0o700)
    file = directory / "credential.pem"
    file.touch(mode=0o600)
    file.write_bytes(encode(credential))
    made = Cache(directory=directory, environment=os.environ | {EXEC_INFO_ENV: exec_info})
    made.printed.write_bytes(encode_exec_credential(credential, API_VERSION, credential.renew_at))
    return made


def _exec_info(authority: pki.Authority) -> str:
    """Return the exec info of client-go, with the settings of an ordinary node."""
    settings = {"nodeName": "worker-1", "providerID": "test:///worker-1"}
    cluster = {
        "server": "https://192.0.2.1:6443",
        "certificate-authority-data": base64.b64encode(authority.pair.certificate).decode(),
        "config": settings,
    }
    document = {
        "kind": "ExecCredential",
        "apiVersion": API_VERSION,
        "spec": {"cluster": cluster, "interactive": False},
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measured values by name of the program."""

    seconds: dict[str, float]
    mebibytes: dict[str, float]


@pytest.fixture
def fresh(tmp_path: Path) -> Cache:
    """Return a cache whose credential is not due for renewal."""
    return cache(tmp_path / "fresh", received=int(time.time()) - HOUR)


def interpreter(code: str, environment: dict[str, str]) -> Program:
    """Return the launcher's interpreter with one line of code."""
    argv = (str(launchers.INTERPRETER), "-I", "-S", "-c", code)
    return Program(name=f"python3 -I -S -c '{code}'", argv=argv, environment=environment)


def print_lines(lines: Sequence[str]) -> None:
    """Print lines of a table."""
    sys.stdout.write("".join(f"\n{line}" for line in lines))


def row(program: Program, figures: Figures, width: int) -> str:
    """Return one line of the table. System calls explain the time and have no goal."""
    return (
        f"{program.name:{width}} {figures.seconds[program.name] * 1e3:7.2f}"
        f" {figures.mebibytes[program.name]:6.1f} {program.system_calls():13}"
    )


def ratio(launcher: Program, other: Program, figures: Figures) -> float:
    """Return the launcher's time divided by another program's."""
    return figures.seconds[launcher.name] / figures.seconds[other.name]


def test_cached_path(fresh: Cache, tmp_path: Path) -> None:
    """Time is at most that of the bare interpreter and of peers; memory is at most the goal."""
    launcher = fresh.call(launchers.packaged(tmp_path / "package"), "launcher")
    bare = interpreter("pass", fresh.environment)
    # As the launcher, it skips the cleanup of the interpreter.
    floor = interpreter("import posix; posix._exit(0)", fresh.environment)
    named = reference_plugins.named(fresh.environment)
    ours = reference_plugins.compiled(tmp_path, fresh.printed, fresh.environment)
    programs = [launcher, bare, floor, *named, *ours]
    figures = Figures(
        seconds=medians(programs, TURNS),
        mebibytes={program.name: program.mebibytes() for program in programs},
    )
    width = max(len(program.name) for program in programs)
    print_lines(
        [
            "",
            f"Cached path: medians of {TURNS} turns",
            f"{'':{width}} {'ms':>7} {'MiB':>6} {'system calls':>13}",
            *(row(program, figures, width) for program in programs),
            *([] if ours else ["No Go on PATH: nothing to compile peers with."]),
            *([] if named else [f"{reference_plugins.NAMED} names no other exec plugin."]),
        ]
    )
    memory = figures.mebibytes[launcher.name]
    print_lines([f"launcher: {memory:.1f} MiB (goal: {MOST_MEBIBYTES:.1f}); its time is"])
    for other in [bare, *named]:
        print_lines([f"  {ratio(launcher, other, figures):.2f} times {other.name} (goal: 1.00)"])
    for other in [floor, *ours]:
        print_lines([f"  {ratio(launcher, other, figures):.2f} times {other.name}"])
    assert memory <= MOST_MEBIBYTES
    assert all(ratio(launcher, other, figures) <= 1 for other in [bare, *named])


def without_full_program(launcher: Path, directory: Path) -> Path:
    """Return a copy of the launcher whose full program ends at once.

    A real background run would compete with the next measured call.
    """
    directory.mkdir()
    copy = directory / launcher.name
    copy.write_bytes(launcher.read_bytes())
    full = copy.with_name(f"{copy.name}-full")
    full.write_text("#!/bin/sh\n")
    for program in (copy, full):
        program.chmod(0o755)
    return copy


def without_bytecode(launcher: Path, directory: Path) -> Path:
    """Return a copy of the launcher that compiles its source in each call."""
    shutil.copytree(launcher.parent, directory, ignore=shutil.ignore_patterns("__pycache__"))
    copy = directory / launcher.name
    text = copy.read_text(encoding="utf-8").replace(str(launcher.parent), str(directory))
    copy.write_text(text.replace(" -IS", " -ISB", 1), encoding="utf-8")
    return copy


def test_call_without_bytecode(fresh: Cache, tmp_path: Path) -> None:
    """Until the package is installed again, it takes at most twice as long as any other call."""
    launcher = launchers.packaged(tmp_path / "package")
    alone = without_bytecode(launcher, tmp_path / "alone")
    programs = [fresh.call(launcher, "usual"), fresh.call(alone, "without bytecode")]
    seconds = medians(programs, FEW_TURNS)
    times = seconds["without bytecode"] / seconds["usual"]
    print_lines(["", f"A call without bytecode: {times:.2f} times any other cached call"])
    assert times <= MOST_TIMES_WITHOUT_BYTECODE


def test_call_that_is_due(fresh: Cache, tmp_path: Path) -> None:
    """A call whose renewal is due takes at most 1.5 times as long as any other cached call."""
    launcher = launchers.packaged(tmp_path / "package")
    alone = without_full_program(launcher, tmp_path / "alone")
    renewal = math.ceil(renewal_delay("worker-1", 8 * HOUR))
    due = cache(tmp_path / "due", received=int(time.time()) - renewal)
    overdue = cache(tmp_path / "overdue", received=int(time.time()) - 7 * HOUR)
    programs = [
        fresh.call(alone, "not due"),
        due.call(alone, "due"),
        overdue.call(launcher, "overdue, served by the full program"),
    ]
    with (overdue.directory / "exchange.lock").open("wb") as lock:
        # A renewal is running, so that the full program starts none in the background.
        fcntl.flock(lock, fcntl.LOCK_EX)
        seconds = medians(programs, FEW_TURNS)
    ratios = {name: median / seconds["not due"] for name, median in seconds.items()}
    print_lines(["", f"Calls from the cache: medians of {FEW_TURNS} turns"])
    print_lines([f"  {n:34} {seconds[n] * 1e3:7.2f} ms {ratios[n]:6.2f}" for n in ratios])
    assert ratios["due"] <= MOST_TIMES_CACHED
