"""Follows the quick start with the published files, to a Ready node."""

from typing import Final

from common.names import CLIENT_SIGNER
from tests.demo.narration import Narrator
from tests.harness.client import Client
from tests.integration import csrs
from tests.packaging.newcomer import quick_start
from tests.packaging.newcomer.clusters import NAMESPACE
from tests.packaging.newcomer.machine import NAME
from tests.packaging.newcomer.quick_start import Newcomer
from tests.release.rehearsal.registry import pull
from tests.release.rehearsal.stage import OLD, SITE, Stage
from tests.release.rehearsal.story import Step
from tests.release.rehearsal.workstation import Workstation

_BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
_DOWNLOAD: Final = f"""
mkdir files
cd files
curl --fail --silent --show-error --remote-name {SITE}/v{OLD}/SHA256SUMS
while read -r _ name; do
  curl --fail --silent --show-error --remote-name "{SITE}/v{OLD}/$name"
done <SHA256SUMS
sha256sum --check --strict --quiet SHA256SUMS
"""


def install(stage: Stage) -> str:
    """Download the files of 0.1.0, and run every command of the page."""
    download = Workstation(stage, "download")
    download.run(_DOWNLOAD)
    directory = stage.new_directory("newcomer")
    story = Narrator()
    with quick_start.prepared(
        directory, story, release=download.directory / "files", pull=lambda name: pull(stage, name)
    ) as newcomer:
        assert len(_automatic_approval(newcomer.clusters.tenant.workload.admin)) == 2
        started_at = story.elapsed
        newcomer.follow()
        seconds = story.elapsed - started_at
        _require_attestation(newcomer)
    blocks = len(quick_start.blocks())
    return f"all {blocks} blocks have passed in {seconds:.0f} s, and {NAME} is Ready"


def _require_attestation(newcomer: Newcomer) -> None:
    """Require a Ready node, and that only its attestation gave it a certificate."""
    workload = newcomer.clusters.tenant.workload.admin
    conditions = workload.get(f"/api/v1/nodes/{NAME}")["status"]["conditions"]
    assert ("Ready", "True") in {(each["type"], each["status"]) for each in conditions}, conditions
    # An offer and an answer, both with the bootstrap token; the kubelet requested nothing.
    requests = [each["spec"] for each in workload.list(csrs.CSRS)]
    assert [each["signerName"] for each in requests] == [CLIENT_SIGNER] * 2
    assert all(each["username"].startswith("system:bootstrap:") for each in requests)
    assert _automatic_approval(workload) == []
    claims = newcomer.clusters.management.admin.list(csrs.ATTESTED_NODES.format(NAMESPACE))
    assert [each["spec"]["nodeName"] for each in claims] == [NAME]
    assert "Forbidden" not in newcomer.signer_log


def _automatic_approval(cluster: Client) -> list[str]:
    """Return the bindings of kubeadm that approve certificates without attestation."""
    names = [each["metadata"]["name"] for each in cluster.list(_BINDINGS)]
    return [name for name in names if "node-autoapprove" in name]


STEPS: Final = (Step(phase="install", subject="quick-start", run=install),)
