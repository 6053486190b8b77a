"""Measures programs that end by themselves: wall time side by side, memory, system calls.

On a busy machine absolute numbers mean little. Programs that take turns can still be compared.
"""

import os
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

SEED = 5
TURNS_TO_WARM_UP = 5


class ProgramFailed(Exception):
    """A program under measurement ended with an error, so there is nothing to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One call of a program, in the way client-go makes it."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    mark: Path | None = None
    """The file that a call leaves for the next call of the same parent.

    Each turn is a first call.
    """

    def seconds(self) -> float:
        """Run it once, and return the seconds until it has ended and its output is read."""
        ours, its = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, its, 1)]
        if self.mark is not None:
            self.mark.unlink(missing_ok=True)
        began = time.perf_counter()
        pid = os.posix_spawnp(self.argv[0], self.argv, self.environment, file_actions=actions)
        os.close(its)
        while os.read(ours, 65536):
            pass
        _, status = os.waitpid(pid, 0)
        ended = time.perf_counter()
        os.close(ours)
        if status:
            raise ProgramFailed(f"{self.name} ended with {os.waitstatus_to_exitcode(status)}")
        return ended - began

    def mebibytes(self) -> float:
        """Return its peak resident memory.

        The kernel counts a child from the size of its parent at exec, so a small program starts it.
        """
        report = self._reported("time", "--format=%M", "--output={}")
        return int(report.split()[-1]) / 1024

    def system_calls(self) -> int:
        """Return the number of system calls in all of its processes."""
        report = self._reported(
            "strace", "--follow-forks", "--summary-only", "--summary-columns=name,calls",
            "--output={}",
        )  # fmt: skip
        counted = re.search(r"^\s*total\s+(\d+)|^\s*(\d+)\s+total", report, re.MULTILINE)
        assert counted is not None, report
        return int(counted[1] or counted[2])

    def _reported(self, *command: str) -> str:
        """Run it under a program that writes a report into the file {}."""
        with tempfile.NamedTemporaryFile() as report:
            subprocess.run(
                [*(part.format(report.name) for part in command), *self.argv],
                env=self.environment,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            return Path(report.name).read_text(encoding="utf-8")


def medians(programs: Sequence[Program], turns: int) -> dict[str, float]:
    """Return each program's median in seconds. They take turns, in a different order each time."""
    order = random.Random(SEED)
    seconds_by_name: dict[str, list[float]] = {program.name: [] for program in programs}
    for turn in range(-TURNS_TO_WARM_UP, turns):
        for program in order.sample(programs, len(programs)):
            seconds = program.seconds()
            if turn >= 0:
                seconds_by_name[program.name].append(seconds)
    return {name: median(seconds) for name, seconds in seconds_by_name.items()}
