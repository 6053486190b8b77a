"""Installs the provider with clusterctl from the published files, upgrades it, and goes back."""

import os
from pathlib import Path
from typing import Final

from tests.controlplane import pins, provide
from tests.packaging.signer.clusterctl import LABEL, Clusterctl, management_cluster
from tests.packaging.signer.helm import NAMESPACE
from tests.release.rehearsal.installed import create_key, require
from tests.release.rehearsal.stage import NEW, OLD, VERSIONS, Stage
from tests.release.rehearsal.story import Step


class Installation:
    """A management cluster, and clusterctl with both versions of the provider."""

    def __init__(self, stage: Stage) -> None:
        """Start the API server."""
        version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
        assets = provide.kubernetes(version, provide.ALL)
        directory = stage.new_directory("clusterctl-cluster")
        self.cluster = stage.stack.enter_context(
            management_cluster("provider", directory / "server", assets)
        )
        home: Path = stage.new_directory("clusterctl")
        self.clusterctl = Clusterctl(home, f"v{OLD}", stage.dist(OLD))
        self.clusterctl.add_version(f"v{NEW}", stage.dist(NEW))

    @property
    def access(self) -> str:
        """The flag with the kubeconfig."""
        return f"--kubeconfig={self.cluster.admin_config}"

    def require_plan(self) -> None:
        """Require that clusterctl proposes the upgrade from 0.1.0 to 0.1.1."""
        plan = self.clusterctl.run("upgrade", "plan", self.access)
        [row] = [line.split() for line in plan.splitlines() if line.startswith(LABEL)]
        assert row[-2:] == [f"v{version}" for version in VERSIONS], plan

    def apply(self, version: str) -> None:
        """Replace the installed version by another one."""
        target = f"--addon={NAMESPACE}/node-attestation:v{version}"
        self.clusterctl.run("upgrade", "apply", self.access, target)


def install(stage: Stage) -> str:
    """Run clusterctl init with 0.1.0."""
    installation = stage.once(Installation)
    installation.clusterctl.init(installation.cluster, f"v{OLD}")
    create_key(installation.cluster)
    return require(stage, installation.cluster, OLD)


def upgrade(stage: Stage) -> str:
    """Upgrade to the version that clusterctl proposes."""
    installation = stage.once(Installation)
    installation.require_plan()
    installation.apply(NEW)
    return require(stage, installation.cluster, NEW)


def go_back(stage: Stage) -> str:
    """Name the older version, which clusterctl never proposes."""
    installation = stage.once(Installation)
    installation.apply(OLD)
    installation.require_plan()
    return require(stage, installation.cluster, OLD)


STEPS: Final = (
    Step(phase="install", subject="clusterctl", run=install),
    Step(phase="upgrade", subject="clusterctl", run=upgrade),
    Step(phase="go back", subject="clusterctl", run=go_back),
)
