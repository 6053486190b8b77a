"""A real API server and the real kubeadm accept the examples of packaging/bootstrap."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.controlplane import provide
from tests.harness.controlplane import KubectlFailed
from tests.harness.fleet import Fleet
from tests.harness.management import ManagementCluster
from tests.harness.process import wait_until
from tests.release import bootstrap

JOIN_CONFIGURATIONS = [
    pytest.param(file.content, id=example.name)
    for example in bootstrap.EXAMPLES
    for file in bootstrap.files(example)
    if "kind: JoinConfiguration" in file.content
]


@pytest.fixture(scope="module")
def management(fleet: Fleet) -> ManagementCluster:
    """Return a management cluster that has the KubeadmControlPlane too."""
    _, of_bootstrap = provide.crds()
    crds = of_bootstrap.parents[4] / "controlplane/kubeadm/config/crd/bases"
    cluster = fleet.management
    cluster.kubectl("apply", "--server-side", "-f", str(crds))
    wait_until(
        lambda: "kubeadmcontrolplanes" in cluster.kubectl("api-resources", "-o", "name"),
        what="KubeadmControlPlane is served",
    )
    return cluster


def dry_run(management: ManagementCluster, manifest: str) -> str:
    """Let the API server validate a manifest, which it does not store."""
    flags = ("--dry-run=server", "--validate=strict")
    return management.kubectl("create", *flags, "-f", "-", stdin=manifest)


@pytest.mark.parametrize("example", bootstrap.MANIFESTS, ids=lambda path: path.name)
def test_api_server_accepts_the_example(management: ManagementCluster, example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    assert "created (server dry run)" in dry_run(management, text)
    with pytest.raises(KubectlFailed, match="unknown field"):
        dry_run(management, text.replace("permissions:", "permission:"))


@pytest.mark.parametrize("configuration", JOIN_CONFIGURATIONS)
def test_kubeadm_accepts_the_join_configuration(
    assets: Path, configuration: str, tmp_path: Path
) -> None:
    path = tmp_path / "join.yaml"

    def validate(text: str) -> subprocess.CompletedProcess[str]:
        path.write_text(text, encoding="utf-8")
        return subprocess.run(
            [assets / "kubeadm", "config", "validate", "--config", path],
            check=False, capture_output=True, text=True,
        )  # fmt: skip

    assert validate(configuration).returncode == 0, validate(configuration).stderr
    wrong = yaml.safe_load(configuration)
    wrong["discovery"]["bootstrapToken"]["token"] = "no token"
    assert "the bootstrap token is invalid" in validate(yaml.safe_dump(wrong)).stderr
    wrong = yaml.safe_load(configuration)
    wrong["timeouts"] = {"kubeletHealthChecks": "1h0m0s"}
    assert 'unknown field "timeouts.kubeletHealthChecks"' in validate(yaml.safe_dump(wrong)).stderr
