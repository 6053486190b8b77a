"""Installs the provider with clusterctl from the published files, and upgrades it.

clusterctl has no command that goes back to an older version.
"""

import os
from pathlib import Path
from typing import Final

from tests.controlplane import pins, provide
from tests.harness.client import Object
from tests.packaging.signer.clusterctl import LABEL, Clusterctl, management_cluster
from tests.packaging.signer.helm import NAMESPACE, RELEASE
from tests.packaging.signer.served import when_served
from tests.release.rehearsal.registry import IMAGE
from tests.release.rehearsal.stage import NEW, OLD, VERSIONS, Stage
from tests.release.rehearsal.story import Step

_DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
_KEYS: Final = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
_KEY: Final[Object] = {
    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
    "kind": "EndorsementKey",
    "metadata": {"name": "5" * 64},
    "spec": {},
}


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

    def require(self, version: str) -> str:
        """Require that a version is installed, and that the objects of the users are there."""
        deployment = self.cluster.admin.get(_DEPLOYMENT)
        assert deployment["metadata"]["labels"]["app.kubernetes.io/version"] == version
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith(f"{IMAGE}@sha256:"), container["image"]
        assert len(when_served(lambda: self.cluster.admin.list(_KEYS))) == 1
        return f"v{version} is installed, and the EndorsementKey is there"


def install(stage: Stage) -> str:
    """Run clusterctl init with 0.1.0."""
    installation = stage.once(Installation)
    installation.clusterctl.init(installation.cluster, f"v{OLD}")
    when_served(lambda: installation.cluster.admin.create(_KEYS, _KEY))
    return installation.require(OLD)


def upgrade(stage: Stage) -> str:
    """Upgrade to the version that clusterctl proposes."""
    installation = stage.once(Installation)
    plan = installation.clusterctl.run("upgrade", "plan", installation.access)
    [row] = [line.split() for line in plan.splitlines() if line.startswith(LABEL)]
    assert row[-2:] == [f"v{version}" for version in VERSIONS], plan
    target = f"--addon={NAMESPACE}/node-attestation:v{NEW}"
    installation.clusterctl.run("upgrade", "apply", installation.access, target)
    return installation.require(NEW)


STEPS: Final = (
    Step(phase="install", subject="clusterctl", run=install),
    Step(phase="upgrade", subject="clusterctl", run=upgrade),
)
