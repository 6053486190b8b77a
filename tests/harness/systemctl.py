"""A stand-in for systemctl with the features that the kubelet's unit needs, for kubeadm.

    python systemctl.py ROOT (daemon-reload | start | stop | restart | status | is-active) kubelet

Reads the unit and its drop-ins from ROOT, and programs and environment files from there if they
exist there, else from the machine. Commands before the start may fail when they begin with `-`.
Starts the service again when it ends. It is a program, and imports nothing of the tests.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

UNITS = "usr/lib/systemd/system"
SETTING = re.compile(r"^(Environment|EnvironmentFile|ExecStart|ExecStartPre)=(.*)$", re.MULTILINE)
RESTART_SECONDS = 1
POLL_SECONDS = 0.05
LOG = "kubelet.log"
STARTED = "started"
"""Exists when the service itself, and no command before its start, runs."""
NOT_RUNNING = 3
"""Exit code of systemctl for a unit that does not exist."""


@dataclass
class Unit:
    """A service with its drop-ins."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    file_variables: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    command: str = ""

    def read(self) -> "Unit":
        """Read the unit, then its drop-ins in the order of their names."""
        units = self.root / UNITS
        for path in (units / "kubelet.service", *sorted(units.glob("kubelet.service.d/*.conf"))):
            for key, value in SETTING.findall(path.read_text()):
                self._set(key, value)
        return self

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the unit. Variables from files take precedence, in any order."""
        return self.variables | self.file_variables

    def _set(self, key: str, value: str) -> None:
        match key:
            case "Environment":
                self.variables |= dict(_assignment(word) for word in shlex.split(value))
            case "EnvironmentFile":
                self.file_variables |= dict(self._file(value.removeprefix("-")))
            case "ExecStartPre":
                self.before.append(value)
            case _:
                self.command = value

    def _file(self, name: str) -> Iterator[tuple[str, str]]:
        path = self._place(name)
        for line in path.read_text().splitlines() if path.exists() else []:
            if line and not line.startswith("#"):
                [word] = shlex.split(line)
                yield _assignment(word)

    def argv(self, command: str) -> list[str]:
        """Return the words of a command. A variable on its own becomes as many words as it has."""
        words: list[str] = []
        for word in command.split():
            if word.startswith("$"):
                words += shlex.split(self.environment.get(word[1:], ""))
            else:
                words.append(str(self._place(word)) if word.startswith("/") else word)
        return words

    def _place(self, name: str) -> Path:
        inside = self.root / name.lstrip("/")
        return inside if inside.exists() else Path(name)


def _assignment(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def supervise(root: Path) -> None:
    """Run the service, and start it again whenever it ends."""
    while True:
        unit = Unit(root).read()
        environment = os.environ | unit.environment
        for command in unit.before:
            done = subprocess.run(
                unit.argv(command.removeprefix("-")), env=environment, check=False
            )
            if done.returncode and not command.startswith("-"):
                break
        else:
            (root / STARTED).touch()
            subprocess.run(unit.argv(unit.command), env=environment, check=False)
        time.sleep(RESTART_SECONDS)


def stop(root: Path) -> None:
    """End the service and its supervisor."""
    pid = root / "pid"
    if pid.exists():
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(int(pid.read_text()), signal.SIGTERM)
        pid.unlink()


def start(root: Path) -> None:
    """Start the service, and wait until the commands before its start have ended."""
    (root / STARTED).unlink(missing_ok=True)
    with (root / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", __file__, root, "supervise"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (root / "pid").write_text(str(process.pid))
    while process.poll() is None and not (root / STARTED).exists():
        time.sleep(POLL_SECONDS)


def main() -> int:
    """Run the verb of the command line."""
    root, verb, *units = Path(sys.argv[1]), *sys.argv[2:]
    if units not in ([], ["kubelet"]):
        return NOT_RUNNING
    match verb:
        case "supervise":
            supervise(root)
        case "start" | "restart":
            stop(root)
            start(root)
        case "stop":
            stop(root)
        case "is-active":
            sys.stdout.write("active\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
