"""The versions of Kubernetes, etcd, Cluster API and Helm, read from the go.mod files."""

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = HERE / "kubernetes"
CLUSTER_API = HERE / "cluster-api"

Version = tuple[int, ...]


class UnknownVersion(Exception):
    """No go.mod file pins the requested version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The requirements of one go.mod file, and the oldest Go that builds it."""

    modfile: Path
    required: dict[str, str]
    go: Version

    @property
    def kubernetes(self) -> str:
        """Version of Kubernetes, as v1.2.3."""
        return self.required["k8s.io/kubernetes"]

    @property
    def etcd(self) -> str:
        """Version of etcd that this Kubernetes release uses, as v1.2.3."""
        return self.required["go.etcd.io/etcd/server/v3"]

    @property
    def cluster_api(self) -> str:
        """Version of Cluster API, as v1.2.3."""
        return self.required["sigs.k8s.io/cluster-api"]


def read(modfile: Path) -> Pin:
    """Read the requirements of a go.mod file."""
    text = modfile.read_text()
    go = re.search(r"^go (\S+)$", text, re.MULTILINE)
    if go is None:
        raise ValueError(f"{modfile} names no Go version")
    required = re.findall(r"^(?:require )?\s*(\S+) (v\S+)(?: //.*)?$", text, re.MULTILINE)
    return Pin(modfile=modfile, required=dict(required), go=parse(go[1]))


def parse(version: str) -> Version:
    """Parse a version such as 1.26.0 into numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def newest() -> str:
    """Return the newest pinned Kubernetes version, which is the default."""
    return read(KUBERNETES / "go.mod").kubernetes


def kubernetes(version: str) -> Pin:
    """Return the pin of a Kubernetes version. Raises `UnknownVersion`: no go.mod file pins it."""
    return _find(version, KUBERNETES, "k8s.io/kubernetes")


def cluster_api(version: str = "") -> Pin:
    """Return the pin of a Cluster API version, by default of the newest.

    Raises `UnknownVersion`: no go.mod file pins it.
    """
    if not version:
        return read(CLUSTER_API / "go.mod")
    return _find(version, CLUSTER_API, "sigs.k8s.io/cluster-api")


def _find(version: str, directory: Path, module: str) -> Pin:
    pins = {pin.required[module]: pin for pin in map(read, sorted(directory.glob("*.mod")))}
    if version not in pins:
        raise UnknownVersion(f"{version} is not known: must be one of {', '.join(sorted(pins))}")
    return pins[version]
