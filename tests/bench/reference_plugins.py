"""Exec plugins for comparison: two in Go from this repository, and one that the caller names."""

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.bench.measure import Program
from tests.controlplane import golang, pins

SOURCES = Path(__file__).parent / "go"
NAMED = "PEER_EXEC_PLUGIN"
GO_PEERS = {"clientgo": "Go, with client-go", "standard": "Go, standard library alone"}


def named(environment: Mapping[str, str]) -> list[Program]:
    """Return the exec plugin that PEER_EXEC_PLUGIN names, with its arguments."""
    command = tuple(shlex.split(os.environ.get(NAMED, "")))
    return [Program(name=NAMED, argv=command, environment=environment)] if command else []


def compiled(directory: Path, cache: Path, environment: Mapping[str, str]) -> list[Program]:
    """Compile the two Go plugins, which print the file `cache`. Return none without Go."""
    if shutil.which("go") is None:
        return []
    go = golang.find(pins.read(SOURCES / "go.mod").go, directory, os.environ)
    golang.build(go, ["./..."], cwd=SOURCES, output=directory, environ=os.environ)
    return [
        Program(name=title, argv=(str(directory / name), str(cache)), environment=environment)
        for name, title in GO_PEERS.items()
    ]
