"""Provides programs of a control plane: named by the environment, cached, downloaded or built.

    python3 -m tests.controlplane.provide --need kube-apiserver,etcd,kubectl
    python3 -m tests.controlplane.provide --need all --version v1.35.8
    python3 -m tests.controlplane.provide --need cluster-api
    python3 -m tests.controlplane.provide --crds

Prints the folder (with --crds: the folders) on stdout, everything else on stderr. The order:

1. the folder that KUBEBUILDER_ASSETS names, when it has what is asked, of the same minor version;
2. the cache of this project, outside the checkout;
3. the official release, checksum verified, when it can be reached;
4. a build with Go from the sources that the go.mod files here pin.

3 and 4 happen once on a machine, for one caller at a time, and go on where they were interrupted.
"""

import argparse
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.controlplane import golang, pins, release
from tests.controlplane.progress import say

# What the demo needs; the binary with the rest takes longer to build.
FEW = ("kube-apiserver", "etcd", "kubectl")
ALL = (*FEW, "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm")
CLUSTER_API = "cluster-api"

Builder = Callable[[pins.Pin, Sequence[str], Path, Path, Mapping[str, str]], None]


def build_kubernetes(
    pin: pins.Pin, programs: Sequence[str], folder: Path, cache: Path, environ: Mapping[str, str]
) -> None:
    """Build the one binary that is all programs, and link the missing ones to it."""
    wanted = {*programs, *(program for program in ALL if (folder / program).is_symlink())}
    few = wanted <= set(FEW)
    how_long = "5 to 8" if few else "6 to 11"
    say(
        f"building {', '.join(programs)} {pin.kubernetes} from source: about {how_long} minutes "
        "on two cores, less after an interruption, and never again on this machine"
    )
    go = golang.find(pin.go, cache, environ)
    major, minor, _ = pins.parse(pin.kubernetes)
    version = "k8s.io/component-base/version"
    stamps = {"gitVersion": pin.kubernetes, "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {version}.{name}={value}" for name, value in stamps.items())
    arguments = [f"-modfile={pin.modfile.name}", f"-ldflags=-s -w {flags}"]
    arguments += ["-tags=providerless" if few else "-tags=providerless,every", "."]
    partial = folder / ".kubernetes"
    golang.build(go, arguments, cwd=pins.KUBERNETES, output=partial, environ=environ)
    partial.replace(folder / "kubernetes")
    for program in wanted:
        link = folder / f".{program}"
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")
        link.replace(folder / program)


def kubernetes(
    version: str,
    programs: Sequence[str],
    *,
    environ: Mapping[str, str] = os.environ,
    sites: release.Sites = release.OFFICIAL,
    builder: Builder = build_kubernetes,
) -> Path:
    """Return a folder with these programs of this version.

    Raises:
        pins.UnknownVersion: nothing is known about this version.
        golang.BuildFailed: it could neither be downloaded nor built.
    """
    pin = pins.kubernetes(version)
    named = _named_by(environ, pin, programs)
    if named is not None:
        return named
    folder = cache_directory(environ) / version
    if not missing(folder, programs):
        return folder
    with locked(folder):
        if absent := missing(folder, programs):
            try:
                release.download(pin, absent, folder, sites)
            except release.NotDownloaded as reason:
                say(f"tried the official release: {reason}")
        if absent := missing(folder, programs):
            builder(pin, absent, folder, cache_directory(environ), environ)
    return folder


def cluster_api(*, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a folder with Cluster API's core manager; there is no release of it but images."""
    pin = pins.cluster_api()
    folder = cache_directory(environ) / f"{CLUSTER_API}-{pin.cluster_api}"
    if not missing(folder, [CLUSTER_API]):
        return folder
    with locked(folder):
        if missing(folder, [CLUSTER_API]):
            say(f"building Cluster API {pin.cluster_api} from source: 2 to 4 minutes, once")
            go = golang.find(pin.go, cache_directory(environ), environ)
            stamp = f"-X sigs.k8s.io/cluster-api/version.gitVersion={pin.cluster_api}"
            arguments = [f"-ldflags=-s -w {stamp}", "sigs.k8s.io/cluster-api/core"]
            partial = folder / f".{CLUSTER_API}"
            golang.build(go, arguments, cwd=pins.CLUSTER_API, output=partial, environ=environ)
            partial.replace(folder / CLUSTER_API)
    return folder


def crds(*, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the folders with the CRDs of Cluster API's core and of its kubeadm bootstrap."""
    pin = pins.cluster_api()
    go = golang.find(pin.go, cache_directory(environ), environ)
    module = "sigs.k8s.io/cluster-api"
    source = golang.module_folder(go, module, cwd=pins.CLUSTER_API, environ=environ)
    return source / "core/config/crd/bases", source / "bootstrap/kubeadm/config/crd/bases"


def missing(folder: Path, programs: Sequence[str]) -> list[str]:
    """Return the programs that a folder lacks."""
    return [program for program in programs if not os.access(folder / program, os.X_OK)]


def _named_by(environ: Mapping[str, str], pin: pins.Pin, programs: Sequence[str]) -> Path | None:
    if not environ.get("KUBEBUILDER_ASSETS"):
        return None
    folder = Path(environ["KUBEBUILDER_ASSETS"])
    if absent := missing(folder, ["kube-apiserver", *programs]):
        say(f"KUBEBUILDER_ASSETS ({folder}) is not used: it lacks {', '.join(absent)}")
        return None
    found = _output([folder / "kube-apiserver", "--version"])
    if pins.parse(found)[:2] != pins.parse(pin.kubernetes)[:2]:
        say(f"KUBEBUILDER_ASSETS ({folder}) is not used: {found} is not {pin.kubernetes}")
        return None
    return folder


def _output(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that keeps built programs from run to run."""
    home = environ.get("XDG_CACHE_HOME") or Path(environ["HOME"]) / ".cache"
    return Path(home) / "node-attestation" / "controlplane"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a directory while it is filled. The kernel releases the lock when its holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is filling {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="provide", description=__doc__.splitlines()[0])
    parser.add_argument("--version", default=pins.newest(), help="default: %(default)s")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--need", help="'all', 'cluster-api', or programs with commas between")
    what.add_argument("--crds", action="store_true", help="the CRDs of Cluster API")
    arguments = parser.parse_args()
    if arguments.need and arguments.need != CLUSTER_API:
        arguments.need = ALL if arguments.need == "all" else arguments.need.split(",")
        if unknown := set(arguments.need) - set(ALL):
            parser.error(f"{', '.join(unknown)}: not known; there are {', '.join(ALL)}")
    return arguments


def main() -> None:
    """Provide what the command line asks for."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.crds:
            folders = crds()
        elif arguments.need == CLUSTER_API:
            folders = (cluster_api(),)
        else:
            folders = (kubernetes(arguments.version, arguments.need),)
    except (pins.UnknownVersion, golang.BuildFailed) as error:
        say(str(error))
        sys.exit(1)
    sys.stdout.writelines(f"{folder}\n" for folder in folders)


if __name__ == "__main__":
    main()
