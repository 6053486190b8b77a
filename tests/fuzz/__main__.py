"""Coverage-guided fuzzing of every parser: `make fuzz`, or one of them with --only NAME.

Each target runs in its own process, as many at a time as there are processors. Findings are stored
under tests/vectors/fuzz/<target>/, and every `make test` runs them. Inputs that only reach new code
are stored in .cache, where the next run begins.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tests.fuzz.target import FINDINGS, Target
from tests.fuzz.targets import TARGETS

CORPORA = Path(__file__).parents[2] / ".cache" / "fuzz"
MAX_SIZE = 16 * 1024
"""Maximum bytes of an input. Larger ones would reach no other code."""
SLOW_SECONDS = 5
"""Maximum seconds for an input. A slower one is a finding."""
MEMORY_MIB = 2048
_STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)
_COVERAGE = re.compile(r" cov: (\d+) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one target."""

    name: str
    runs: int
    runs_per_second: int
    branches: int
    findings: tuple[Path, ...]
    failed: bool
    output: str


def main() -> int:
    """Fuzz the targets. The exit status is 1 after a finding."""
    arguments = _arguments()
    targets = [TARGETS[name] for name in arguments.only or TARGETS]
    _print_line(f"{len(targets)} targets, {arguments.seconds} s each, {arguments.jobs} at a time")
    _print_line(f"{'target':26}{'runs':>10}{'runs/s':>9}{'branches':>10}  found")
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(lambda target: _fuzz(target, arguments.seconds), targets):
            _print_line(_line(outcome))
            failed |= outcome.failed
            if outcome.failed:
                _print_line(outcome.output)
    return int(failed)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz every parser.")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="for each target")
    parser.add_argument("--only", action="append", choices=list(TARGETS), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    return parser.parse_args()


def _fuzz(target: Target, seconds: int) -> Outcome:
    corpus, directory = CORPORA / target.name, FINDINGS / target.name
    before = set(target.findings())
    _plant(target, corpus)
    directory.mkdir(parents=True, exist_ok=True)
    command = (
        *(sys.executable, "-m", "tests.fuzz.guided", target.name),
        *(f"-max_total_time={seconds}", f"-timeout={SLOW_SECONDS}", f"-max_len={MAX_SIZE}"),
        *(f"-rss_limit_mb={MEMORY_MIB}", f"-artifact_prefix={directory}/", "-print_final_stats=1"),
        *("-reload=0", str(corpus)),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    findings = tuple(path for path in target.findings() if path not in before)
    if not any(directory.iterdir()):
        directory.rmdir()
    statistics = {name: int(value) for name, value in _STATISTIC.findall(done.stderr)}
    return Outcome(
        name=target.name,
        runs=statistics.get("number_of_executed_units", 0),
        runs_per_second=statistics.get("average_exec_per_sec", 0),
        branches=max(map(int, _COVERAGE.findall(done.stderr)), default=0),
        findings=findings,
        failed=done.returncode != 0,
        output=_tail(done.stdout + done.stderr),
    )


def _plant(target: Target, corpus: Path) -> None:
    """Write the seeds: accepted inputs, and earlier findings."""
    corpus.mkdir(parents=True, exist_ok=True)
    for content in (*target.seeds(), *(path.read_bytes() for path in target.findings())):
        (corpus / sha256(content).hexdigest()).write_bytes(content)


def _line(outcome: Outcome) -> str:
    result = ", ".join(path.name for path in outcome.findings) or ("failed" * outcome.failed or "-")
    return (
        f"{outcome.name:26}{outcome.runs:>10}{outcome.runs_per_second:>9}"
        f"{outcome.branches:>10}  {result}"
    )


def _tail(output: str) -> str:
    """Return the part of the output that names the finding: the exception, or the last lines."""
    lines = [line for line in output.splitlines() if not line.startswith(("#", "INFO:", "stat::"))]
    begin = next((n for n, line in enumerate(lines) if "Uncaught" in line), len(lines) - 12)
    end = next((n for n, line in enumerate(lines) if "libFuzzer" in line), len(lines))
    telling = lines[max(begin, 0) : end if end > begin else len(lines)]
    return "".join(f"    {line}\n" for line in telling[-30:])


if __name__ == "__main__":
    sys.exit(main())
