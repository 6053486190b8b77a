"""Provides the programs of a control plane: from the environment, the cache, a download or a build.

    python3 -m tests.controlplane.provide --need kube-apiserver,etcd,kubectl
    python3 -m tests.controlplane.provide --need all --version v1.35.8
    python3 -m tests.controlplane.provide --need cluster-api
    python3 -m tests.controlplane.provide --need helm4
    python3 -m tests.controlplane.provide --need promtool
    python3 -m tests.controlplane.provide --crds

Prints the directory (with --crds: the directories) on stdout, all messages on stderr. The order:

1. the directory that KUBEBUILDER_ASSETS names, if it has the programs of the same minor version;
2. the cache of this project, outside of the checkout;
3. the official release, with a verified checksum, if it can be reached;
4. a build with Go from the sources that the go.mod files pin.

Steps 3 and 4 run once per machine, for one caller at a time, and continue after an interruption.
"""

import argparse
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane import golang, pins, release
from tests.controlplane.progress import say
from tests.controlplane.tools import CLUSTER_API_MODULE, TOOLS, Tool

# Enough for the demo. The binary with all programs takes longer to build.
FEW = ("kube-apiserver", "etcd", "kubectl")
ALL = (*FEW, "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm")
CLUSTER_API = "cluster-api"


_TOOL_NAMES = (CLUSTER_API, *TOOLS)

Builder = Callable[[pins.Pin, Sequence[str], Path, Path, Mapping[str, str]], None]


def build_kubernetes(
    pin: pins.Pin, programs: Sequence[str], directory: Path, cache: Path, environ: Mapping[str, str]
) -> None:
    """Build the one binary that contains all programs, and create the missing links to it."""
    linked = {*programs, *(program for program in ALL if (directory / program).is_symlink())}
    few = linked <= set(FEW)
    duration = "5 to 8" if few else "6 to 11"
    say(
        f"building {', '.join(programs)} {pin.kubernetes} from source: about {duration} minutes "
        "on two cores, less after an interruption, once per machine"
    )
    go = golang.find(pin.go, cache, environ)
    major, minor, _ = pins.parse(pin.kubernetes)
    version = "k8s.io/component-base/version"
    stamps = {"gitVersion": pin.kubernetes, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {version}.{name}={value}" for name, value in stamps.items())
    arguments = [f"-modfile={pin.modfile.name}", f"-ldflags=-s -w {flags}"]
    arguments += ["-tags=providerless" if few else "-tags=providerless,every", "."]
    partial = directory / ".kubernetes"
    golang.build(go, arguments, cwd=pins.KUBERNETES, output=partial, environ=environ)
    partial.replace(directory / "kubernetes")
    for program in linked:
        link = directory / f".{program}"
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")
        link.replace(directory / program)


def kubernetes(
    version: str,
    programs: Sequence[str],
    *,
    environ: Mapping[str, str] = os.environ,
    sites: release.Sites = release.OFFICIAL,
    builder: Builder = build_kubernetes,
) -> Path:
    """Return a directory with these programs of this version.

    Raises:
        pins.UnknownVersion: no go.mod file pins this version.
        golang.BuildFailed: they could neither be downloaded nor built.
    """
    pin = pins.kubernetes(version)
    from_environment = _from_environment(environ, pin, programs)
    if from_environment is not None:
        return from_environment
    directory = cache_directory(environ) / version
    if not missing(directory, programs):
        return directory
    with locked(directory):
        if absent := missing(directory, programs):
            try:
                release.download(pin, absent, directory, sites)
            except release.NotDownloaded as reason:
                say(f"tried the official release: {reason}")
        if absent := missing(directory, programs):
            builder(pin, absent, directory, cache_directory(environ), environ)
    return directory


def tool(name: str, *, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a program of `TOOLS`, or Cluster API's core manager.

    It is the one in PATH if the version fits, or the one in the cache, or it is built.

    Raises `golang.BuildFailed`: it could not be built.
    """
    source = cluster_api(environ) if name == CLUSTER_API else TOOLS[name]
    pin = pins.read(source.modfile)
    version = source.version()
    directory = cache_directory(environ) / f"{name}-{version}"
    if from_path := _from_path(source, environ):
        return from_path
    if not missing(directory, [name]):
        return directory / name
    with locked(directory):
        if missing(directory, [name]):
            say(f"building {name} {version} from source: 1 to 4 minutes, once per machine")
            go = golang.find(pin.go, cache_directory(environ), environ)
            stamps = " ".join(f"-X {variable}={version}" for variable in source.version_variables)
            arguments = [f"-modfile={source.modfile.name}", f"-ldflags=-s -w {stamps}"]
            arguments += [f"-tags={source.tags}", source.package]
            partial = directory / f".{name}"
            golang.build(go, arguments, cwd=source.modfile.parent, output=partial, environ=environ)
            partial.replace(directory / name)
    return directory / name


def cluster_api(environ: Mapping[str, str]) -> Tool:
    """Return Cluster API's core manager in the version of CLUSTER_API_VERSION, or in the newest.

    It is only released as an image.
    """
    pin = pins.cluster_api(environ.get("CLUSTER_API_VERSION", ""))
    return Tool(
        modfile=pin.modfile,
        module=CLUSTER_API_MODULE,
        package=f"{CLUSTER_API_MODULE}/{_core(pin)}".rstrip("/"),
        version_variables=(f"{CLUSTER_API_MODULE}/version.gitVersion",),
    )


def crds(*, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the directories with the CRDs of Cluster API's core and of its kubeadm bootstrap."""
    pin = pins.cluster_api(environ.get("CLUSTER_API_VERSION", ""))
    go = golang.find(pin.go, cache_directory(environ), environ)
    source = golang.module_directory(go, CLUSTER_API_MODULE, modfile=pin.modfile, environ=environ)
    return (
        source / _core(pin) / "config/crd/bases",
        source / "bootstrap/kubeadm/config/crd/bases",
    )


def _core(pin: pins.Pin) -> str:
    """Return the directory of the core manager, which was the root of the module until v1.13."""
    return "core" if pins.parse(pin.cluster_api) >= (1, 14) else ""


def missing(directory: Path, programs: Sequence[str]) -> list[str]:
    """Return the programs that a directory does not have."""
    return [program for program in programs if not os.access(directory / program, os.X_OK)]


def _from_environment(
    environ: Mapping[str, str], pin: pins.Pin, programs: Sequence[str]
) -> Path | None:
    if not environ.get("KUBEBUILDER_ASSETS"):
        return None
    directory = Path(environ["KUBEBUILDER_ASSETS"])
    if absent := missing(directory, ["kube-apiserver", *programs]):
        say(f"KUBEBUILDER_ASSETS ({directory}) is not used: it does not have {', '.join(absent)}")
        return None
    installed = _output([directory / "kube-apiserver", "--version"])
    if pins.parse(installed)[:2] != pins.parse(pin.kubernetes)[:2]:
        say(f"KUBEBUILDER_ASSETS ({directory}) is not used: {installed} is not {pin.kubernetes}")
        return None
    return directory


def _from_path(source: Tool, environ: Mapping[str, str]) -> Path | None:
    """Return a program in PATH that has the pinned minor version."""
    found = shutil.which(source.on_path, path=environ.get("PATH")) if source.on_path else None
    if found is None:
        return None
    installed = re.search(r"v(\d+\.\d+\.\d+)", _output([found, "version"]))
    wanted = source.version()
    if installed is None or pins.parse(installed[1])[:2] != pins.parse(wanted)[:2]:
        say(f"{found} is not used: {installed and installed[0]} has not the minor version {wanted}")
        return None
    say(f"using {found}, {installed[0]}")
    return Path(found)


def _output(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that keeps built programs from run to run."""
    home = environ.get("XDG_CACHE_HOME") or Path(environ["HOME"]) / ".cache"
    return Path(home) / "node-attestation" / "controlplane"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory while it is filled. The kernel releases the lock when its holder dies."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is filling {directory}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="provide", description=__doc__.splitlines()[0])
    parser.add_argument("--version", default=pins.newest(), help="default: %(default)s")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--need", help=f"'all', a list of programs with commas, or one of {', '.join(_TOOL_NAMES)}"
    )
    what.add_argument(
        "--crds", action="store_true", help="print the directories with the CRDs of Cluster API"
    )
    arguments = parser.parse_args()
    if arguments.need and arguments.need not in _TOOL_NAMES:
        arguments.need = ALL if arguments.need == "all" else arguments.need.split(",")
        if unknown := set(arguments.need) - set(ALL):
            parser.error(f"{', '.join(unknown)}: unknown; must be among {', '.join(ALL)}")
    return arguments


def main() -> None:
    """Provide the programs or CRDs that the command line names."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.crds:
            directories = crds()
        elif isinstance(arguments.need, str):
            directories = (tool(arguments.need).parent,)
        else:
            directories = (kubernetes(arguments.version, arguments.need),)
    except (pins.UnknownVersion, golang.BuildFailed) as error:
        say(str(error))
        sys.exit(1)
    sys.stdout.writelines(f"{directory}\n" for directory in directories)


if __name__ == "__main__":
    main()
