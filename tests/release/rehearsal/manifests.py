"""Installs the signer with kubectl from the published manifests, upgrades it, and goes back."""

import os
from typing import Final

from tests.controlplane import pins, provide
from tests.harness.controlplane import ApiServer
from tests.release.rehearsal.installed import create_key, require
from tests.release.rehearsal.stage import NEW, OLD, SITE, Stage
from tests.release.rehearsal.story import Step
from tests.release.rehearsal.workstation import Workstation

SUBJECT: Final = "kubectl"


class Installation:
    """An API server, and a user of kubectl who downloads the manifests."""

    def __init__(self, stage: Stage) -> None:
        """Start the API server."""
        version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
        assets = provide.kubernetes(version, provide.FEW)
        directory = stage.new_directory("kubectl-cluster")
        self.cluster = ApiServer("manifests", directory / "server", assets)
        stage.stack.enter_context(self.cluster)
        self._workstation = Workstation(stage, "kubectl")
        self._workstation.environment["KUBECONFIG"] = str(self.cluster.admin_config)

    def apply(self, version: str) -> None:
        """Apply both files of a version, which the command of docs/install-signer.md names."""
        self._workstation.run(
            "kubectl apply --server-side --filename $URL/crds.yaml --filename $URL/install.yaml",
            URL=f"{SITE}/v{version}",
        )


def install(stage: Stage) -> str:
    """Apply the manifests of 0.1.0."""
    installation = stage.once(Installation)
    installation.apply(OLD)
    create_key(installation.cluster)
    return require(stage, installation.cluster, OLD)


def upgrade(stage: Stage) -> str:
    """Apply those of 0.1.1."""
    installation = stage.once(Installation)
    installation.apply(NEW)
    return require(stage, installation.cluster, NEW)


def go_back(stage: Stage) -> str:
    """Apply those of 0.1.0 again."""
    installation = stage.once(Installation)
    installation.apply(OLD)
    return require(stage, installation.cluster, OLD)


STEPS: Final = (
    Step(phase="install", subject=SUBJECT, run=install),
    Step(phase="upgrade", subject=SUBJECT, run=upgrade),
    Step(phase="go back", subject=SUBJECT, run=go_back),
)
