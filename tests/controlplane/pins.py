"""Which versions there are: the go.mod files say so, and nothing else does."""

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
KUBERNETES = HERE / "kubernetes"
CLUSTER_API = HERE / "cluster-api"

Version = tuple[int, ...]


class UnknownVersion(Exception):
    """No go.mod file pins this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One go.mod file: what it builds, and the oldest Go that it takes."""

    modfile: Path
    required: dict[str, str]
    go: Version

    @property
    def kubernetes(self) -> str:
        """Kubernetes, as v1.2.3."""
        return self.required["k8s.io/kubernetes"]

    @property
    def etcd(self) -> str:
        """The etcd that belongs to this Kubernetes, as v1.2.3."""
        return self.required["go.etcd.io/etcd/server/v3"]

    @property
    def cluster_api(self) -> str:
        """Cluster API, as v1.2.3."""
        return self.required["sigs.k8s.io/cluster-api"]


def read(modfile: Path) -> Pin:
    """Read what a go.mod file requires."""
    text = modfile.read_text()
    go = re.search(r"^go (\S+)$", text, re.MULTILINE)
    if go is None:
        raise ValueError(f"{modfile} names no Go version")
    required = re.findall(r"^(?:require )?\s*(\S+) (v\S+)(?: //.*)?$", text, re.MULTILINE)
    return Pin(modfile=modfile, required=dict(required), go=parse(go[1]))


def parse(version: str) -> Version:
    """Turn 1.26.0 into numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def newest() -> str:
    """Return the Kubernetes version that everything runs on unless told otherwise."""
    return read(KUBERNETES / "go.mod").kubernetes


def kubernetes(version: str) -> Pin:
    """Return the pin of a Kubernetes version.

    Raises:
        UnknownVersion: there is no go.mod file for it.
    """
    pins = {pin.kubernetes: pin for pin in map(read, sorted(KUBERNETES.glob("*.mod")))}
    if version not in pins:
        raise UnknownVersion(f"{version} is none of {', '.join(sorted(pins))}")
    return pins[version]


def cluster_api() -> Pin:
    """Return the pin of Cluster API."""
    return read(CLUSTER_API / "go.mod")
