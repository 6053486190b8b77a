"""The programs that are built from a pinned Go module."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane import pins

RELEASE_TOOLS: Final = Path(__file__).parents[1] / "release/tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program that is built from a module, unless PATH has it in the same minor version."""

    modfile: Path
    """Pins the module. The file of its checksums has the same name, with the suffix `.sum`."""
    module: str
    package: str
    version_variables: tuple[str, ...] = ()
    """The linker sets them to the version of the module."""
    tags: str = ""
    """Build tags."""
    on_path: str = ""
    """Its name in PATH. `NAME version` prints the version. Without a name it is always built."""

    def version(self) -> str:
        """Return the version of the module, and a digest of the Go files next to go.mod, if any."""
        version = pins.read(self.modfile).required[self.module]
        ours = b"".join(file.read_bytes() for file in sorted(self.modfile.parent.glob("*.go")))
        return f"{version}-{hashlib.sha256(ours).hexdigest()[:12]}" if ours else version


CLUSTER_API_MODULE = "sigs.k8s.io/cluster-api"
_PROMETHEUS_MODULE = "github.com/prometheus/prometheus"
_COSIGN_MODULE = "github.com/sigstore/cosign/v3"
TOOLS = {
    "clusterctl": Tool(
        modfile=pins.CLUSTER_API / "go.mod",
        module=CLUSTER_API_MODULE,
        package=f"{CLUSTER_API_MODULE}/cmd/clusterctl",
        version_variables=(f"{CLUSTER_API_MODULE}/version.gitVersion",),
    ),
    **{
        name: Tool(
            modfile=pins.HERE / name / "go.mod",
            module=module,
            package=f"{module}/cmd/helm",
            version_variables=(f"{module}/internal/version.version",),
            on_path="helm",
        )
        for name, module in {"helm3": "helm.sh/helm/v3", "helm4": "helm.sh/helm/v4"}.items()
    },
    **{
        name: Tool(
            modfile=pins.HERE / "prometheus/go.mod",
            module=_PROMETHEUS_MODULE,
            package=f"{_PROMETHEUS_MODULE}/cmd/{name}",
            # Without the clients of all clouds. The tests name the signer's address.
            tags="remove_all_sd",
        )
        for name in ("prometheus", "promtool")
    },
    "registry": Tool(
        modfile=pins.HERE / "distribution/go.mod",
        module="github.com/distribution/distribution/v3",
        package="github.com/distribution/distribution/v3/cmd/registry",
        version_variables=("github.com/distribution/distribution/v3/version.version",),
    ),
    "cosign": Tool(
        modfile=pins.HERE / "cosign/go.mod",
        module=_COSIGN_MODULE,
        package=f"{_COSIGN_MODULE}/cmd/cosign",
        on_path="cosign",
        version_variables=("sigs.k8s.io/release-utils/version.gitVersion",),
    ),
    "krew": Tool(
        modfile=pins.HERE / "krew/go.mod",
        module="sigs.k8s.io/krew",
        package="sigs.k8s.io/krew/cmd/krew",
    ),
    "actionlint": Tool(
        modfile=RELEASE_TOOLS / "go.mod",
        module="github.com/rhysd/actionlint",
        package="github.com/rhysd/actionlint/cmd/actionlint",
    ),
    "ignition-validate": Tool(
        modfile=RELEASE_TOOLS / "go.mod",
        module="github.com/coreos/ignition/v2",
        package="github.com/coreos/ignition/v2/validate",
    ),
    "scorecard": Tool(
        modfile=RELEASE_TOOLS / "scorecard/go.mod",
        module="github.com/ossf/scorecard/v5",
        package="github.com/ossf/scorecard/v5",
        version_variables=("sigs.k8s.io/release-utils/version.gitVersion",),
    ),
    "syft": Tool(
        modfile=RELEASE_TOOLS / "syft/go.mod",
        module="github.com/anchore/syft",
        package="github.com/anchore/syft/cmd/syft",
        version_variables=("main.version",),
    ),
    # VMware's simulator of vCenter Server, in a program of ours.
    "vcsim": Tool(
        modfile=pins.HERE / "vcsim/go.mod",
        module="github.com/vmware/govmomi",
        package=".",
    ),
}
