"""Builds the Go tools that check the files of a release, once per machine.

    python -m tests.release.tools actionlint ARGUMENT...

`tools/go.mod` pins the versions and `tools/go.sum` the bytes.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.controlplane import golang, pins, provide

MODULE: Final = Path(__file__).parent / "tools"
TOOLS: Final = {
    "actionlint": ("github.com/rhysd/actionlint", "/cmd/actionlint"),
    "ignition-validate": ("github.com/coreos/ignition/v2", "/validate"),
}
"""Module and package of each tool."""


def tool(name: str) -> Path:
    """Return the path of a tool of the pinned version. Builds it when it is not in the cache.

    Raises `golang.BuildFailed`: Go or a module cannot be had, or does not compile.
    """
    pin = pins.read(MODULE / "go.mod")
    module, package = TOOLS[name]
    version = pin.required[module]
    directory = provide.cache_directory(os.environ).with_name("tools") / f"{name}-{version}"
    with provide.locked(directory):
        if provide.missing(directory, [name]):
            go = golang.find(pin.go, provide.cache_directory(os.environ), os.environ)
            partial = directory / f".{name}"
            golang.build(go, [module + package], cwd=MODULE, output=partial, environ=os.environ)
            partial.replace(directory / name)
    return directory / name


if __name__ == "__main__":
    sys.exit(subprocess.run([tool(sys.argv[1]), *sys.argv[2:]], check=False).returncode)
