"""Installs the chart from the registry on real API servers, upgrades it, and goes back."""

import os
import shutil
from pathlib import Path
from typing import Final

from builders import image
from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import free_port
from tests.harness.signer import opt_in
from tests.harness.tpm import TrustDomain
from tests.packaging.newcomer.clusters import BareManagementCluster
from tests.packaging.signer.helm import NAMESPACE, RELEASE
from tests.packaging.signer.pod import Pod
from tests.release.rehearsal.installed import DEPLOYMENT
from tests.release.rehearsal.registry import CHART, pull
from tests.release.rehearsal.stage import NEW, OLD, Stage
from tests.release.rehearsal.story import Step
from tests.release.rehearsal.workstation import Workstation

_EMULATOR: Final = "/usr/bin/qemu-aarch64-static"
_EMULATED_SECONDS: Final = 600
"""An emulated signer needs 20 s of CPU until it is ready."""


class Installation:
    """A management cluster without anything of this project, and a machine that may join."""

    def __init__(self, stage: Stage) -> None:
        """Start the control planes."""
        self._stage = stage
        directory = stage.new_directory("fleet")
        version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
        assets = provide.kubernetes(version, provide.ALL)
        self._fleet = Fleet(directory, assets)
        management = BareManagementCluster("management", directory / "bare", assets)
        self._fleet.management = management
        stage.stack.enter_context(self._fleet)
        opt_in(self._fleet, self._fleet.first)
        vendor = TrustDomain(stage.new_directory("vendor"))
        machines = Machines(self._fleet, vendor, stage.new_directory("machines"), stage.stack)
        self._node = machines.registered()
        self._workstation = Workstation(stage, "helm")
        self._workstation.environment["KUBECONFIG"] = str(management.admin_config)
        self._port = str(free_port())

    def helm(self, command: str) -> None:
        """Run Helm on the release."""
        script = f"helm {command} --namespace {NAMESPACE}"
        self._workstation.run(script, RELEASE=RELEASE, CHART=f"oci://{CHART}", PORT=self._port)

    def serve_with(self, architecture: str, version: str) -> str:
        """Run a pod of the Deployment, through which the machine gets its next certificate."""
        directory = self._pull(architecture)
        entrypoint: list[str] = self._entrypoint
        if architecture != image.THIS_ARCHITECTURE:
            shutil.copy(_EMULATOR, directory / "root")
            entrypoint = [f"/{Path(_EMULATOR).name}", *entrypoint]
        management = self._fleet.management
        root = directory / "root"
        pod = Pod(management, NAMESPACE, RELEASE, root=root, directory=directory)
        with pod.running(entrypoint, seconds=_EMULATED_SECONDS):
            self._get_certificate(pod)
        assert "Forbidden" not in pod.log_lines, pod.log_lines
        assert f'"{version}"' in pod.log_lines, f"the log must name {version}: {pod.log_lines}"
        return f"{version} on {architecture} has issued a certificate"

    def _get_certificate(self, pod: Pod) -> None:
        """Join, or renew the certificate if the machine has one."""
        arguments = ["renew", "--kubeconfig", str(self._node.kubeconfig())]
        call = self._node.call(*(arguments if self._node.state.exists() else ()))
        assert call.status == 0, (call.complaint, pod.log_lines)

    def _pull(self, architecture: str) -> Path:
        """Pull the image of the Deployment, as a kubelet does."""
        deployment = self._fleet.management.admin.get(DEPLOYMENT)
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        name: str = container["image"]
        archive = pull(self._stage, name)
        directory = archive.parent
        image.unpack_root(archive, directory / "root", architecture)
        self._entrypoint = image.read_config(archive)["config"]["Entrypoint"]
        return directory


def install(stage: Stage) -> str:
    """Install 0.1.0. The machine joins, and renews through the image of the other architecture."""
    installation = stage.once(Installation)
    installation.helm(
        f'install "$RELEASE" "$CHART" --version {OLD} --create-namespace --set "metrics.port=$PORT"'
    )
    return "\n".join(installation.serve_with(each, OLD) for each in image.ARCHITECTURES)


def upgrade(stage: Stage) -> str:
    """Upgrade to 0.1.1."""
    installation = stage.once(Installation)
    installation.helm(f'upgrade "$RELEASE" "$CHART" --version {NEW} --reset-then-reuse-values')
    return installation.serve_with(image.THIS_ARCHITECTURE, NEW)


def go_back(stage: Stage) -> str:
    """Go back to 0.1.0."""
    installation = stage.once(Installation)
    installation.helm('rollback "$RELEASE"')
    return installation.serve_with(image.THIS_ARCHITECTURE, OLD)


STEPS: Final = (
    Step(phase="install", subject="image", run=install),
    Step(phase="upgrade", subject="image", run=upgrade),
    Step(phase="go back", subject="image", run=go_back),
)
