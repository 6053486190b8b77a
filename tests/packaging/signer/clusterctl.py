"""Runs the real clusterctl on a local repository with Cluster API's CRDs and this provider."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.controlplane import pins, provide
from tests.harness.client import Object
from tests.harness.controlplane import ApiServer

LABEL: Final = "addon-node-attestation"
FILES: Final = ("addon-components.yaml", "metadata.yaml")
"""What clusterctl reads of a release."""


class Clusterctl:
    """clusterctl with a local repository that has this provider and Cluster API's CRDs."""

    def __init__(self, directory: Path, version: str, release: Path) -> None:
        """Add a version of this provider to a new repository."""
        self._home = directory
        self._repository = directory / "repository"
        core = self._add_core()
        provider = self.add_version(version, release)
        self._config = directory / "clusterctl.yaml"
        providers = (
            ("cluster-api", "CoreProvider", core),
            ("node-attestation", "AddonProvider", provider),
        )
        described = [{"name": n, "type": t, "url": str(file)} for n, t, file in providers]
        self._config.write_text(yaml.safe_dump({"providers": described}), encoding="utf-8")

    def add_version(self, version: str, release: Path) -> Path:
        """Add a version of this provider to the repository, from the files of a release."""
        directory = self._repository / LABEL / version
        directory.mkdir(parents=True)
        for name in FILES:
            shutil.copy(release / name, directory)
        return directory / FILES[0]

    def init(self, cluster: ApiServer, version: str) -> None:
        """Install the core provider and this one."""
        self.run(
            "init", f"--kubeconfig={cluster.admin_config}",
            f"--core=cluster-api:{pins.cluster_api().cluster_api}",
            "--bootstrap=-", "--control-plane=-", f"--addon=node-attestation:{version}",
        )  # fmt: skip

    def run(self, *arguments: str, **variables: str) -> str:
        """Run clusterctl and return what it printed."""
        done = subprocess.run(
            [provide.tool("clusterctl"), *arguments, "--config", self._config],
            env={
                "HOME": str(self._home),
                "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
                "GOPROXY": "off",
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _add_core(self) -> Path:
        """Add a core provider that consists of Cluster API's own CRDs."""
        version = pins.cluster_api().cluster_api
        namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: capi-system}\n"
        crds = [
            # As Cluster API's installation does: the label names the version of references.
            file.read_text(encoding="utf-8").replace(
                "\nmetadata:\n", "\nmetadata:\n  labels: {cluster.x-k8s.io/v1beta2: v1beta2}\n", 1
            )
            for file in sorted(provide.crds()[0].glob("*.yaml"))
        ]
        major, minor, _ = pins.parse(version)
        metadata = {
            "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
            "kind": "Metadata",
            "releaseSeries": [{"major": major, "minor": minor, "contract": "v1beta2"}],
        }
        directory = self._repository / "cluster-api" / version
        directory.mkdir(parents=True)
        # clusterctl replaces variables, so `$` is `$$`.
        components = "---\n".join([namespace, *crds]).replace("$", "$$")
        (directory / "metadata.yaml").write_text(yaml.safe_dump(metadata), encoding="utf-8")
        file = directory / "core-components.yaml"
        file.write_text(components, encoding="utf-8")
        return file


@contextmanager
def management_cluster(name: str, directory: Path, assets: Path) -> Iterator[ApiServer]:
    """Run an API server that has the kinds of cert-manager, which clusterctl requires."""
    with ApiServer(name, directory, assets) as cluster:
        for kind in ("Issuer", "Certificate"):
            cluster.kubectl("create", "-f", "-", stdin=json.dumps(_certificate_crd(kind)))
        yield cluster


def _certificate_crd(kind: str) -> Object:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }
