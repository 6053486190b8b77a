"""Settings, results and the table of storms: many nodes that ask for a certificate at once."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

from tests.fakes.tpm import EndorsementName

NODES = int(os.environ.get("STORM_NODES", "500"))
CLUSTERS = int(os.environ.get("STORM_CLUSTERS", "1"))
AUTHORITY = os.environ.get("STORM_AUTHORITY", "rsa")
ENDORSEMENT: EndorsementName = "L-1" if os.environ.get("STORM_KEYS") == "rsa" else "L-2"
"""Template of the endorsement keys: RSA 2048 or P-256."""
DELAY = float(os.environ.get("STORM_DELAY", "0"))
"""Seconds that a stand-in server waits before it answers, as a distant one."""
TIMEOUT = int(os.environ.get("STORM_TIMEOUT", "600"))
SETTLE = float(os.environ.get("STORM_SETTLE", "3"))
"""Seconds until the signer watches the stand-in clusters."""
CPUS = os.cpu_count()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What one storm gave."""

    name: str
    seconds: float
    latencies: Sequence[float]
    """Seconds from offer to certificate, sorted."""
    cpu: float
    """CPU seconds of the program that signs."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Requests for single objects, where they are counted."""
    servers_cpu: float = 0.0
    """CPU seconds of API servers and etcds, where they are measured."""

    def row(self) -> str:
        """Return the row of the table."""
        count = len(self.latencies)
        p50, p95, p99 = (quantiles(self.latencies, n=100)[n] for n in (49, 94, 98))
        calls, servers = sum(self.calls.values()) / count, 1000 * self.servers_cpu / count
        return (
            f"  {self.name:34}{count / self.seconds:>8.1f}{p50:>8.2f}s{p95:>8.2f}s{p99:>8.2f}s"
            f"{1000 * self.cpu / count:>8.1f} ms{servers:>8.1f} ms{calls:>8.2f}"
        )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process since its start, in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mebibytes(pid: int) -> float:
    """Return the peak of a process's resident memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def report(title: str, phases: Sequence[Phase], peak: float) -> None:
    """Print the table."""
    lines = [
        f"Storm of {NODES} nodes, {title}",
        f"  CA {AUTHORITY}, EK {ENDORSEMENT}, Python {platform.python_version()}, {CPUS} CPUs",
        f"  {'':34}{'1/s':>8}{'p50':>9}{'p95':>9}{'p99':>9}{'CPU':>11}{'servers':>11}{'calls':>8}",
    ]
    for phase in phases:
        lines.append(phase.row())
        if phase.calls:
            calls = ", ".join(f"{name} {n}" for name, n in sorted(phase.calls.items()))
            lines.append(f"    {calls}")
    lines.append(f"  peak memory of the signer {peak:.0f} MiB")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
