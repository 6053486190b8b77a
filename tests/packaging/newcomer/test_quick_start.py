"""The quick start leads from the files of a release to a Ready node."""

from pathlib import Path
from typing import Any

from common.names import CLIENT_SIGNER
from tests.demo.narration import Narrator
from tests.harness.client import Client
from tests.integration import csrs
from tests.packaging.newcomer import quick_start
from tests.packaging.newcomer.clusters import NAMESPACE
from tests.packaging.newcomer.machine import NAME

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


def test_quick_start_leads_to_a_ready_node(tmp_path: Path) -> None:
    with quick_start.prepared(tmp_path / "newcomer", Narrator()) as newcomer:
        workload = newcomer.clusters.tenant.workload.admin
        assert len(automatic_approval(workload)) == 2
        newcomer.follow()
        conditions = workload.get(f"/api/v1/nodes/{NAME}")["status"]["conditions"]
        assert ("Ready", "True") in {(each["type"], each["status"]) for each in conditions}
        # An offer and an answer, both with the bootstrap token; the kubelet requested nothing.
        requests = [each["spec"] for each in workload.list(csrs.CSRS)]
        assert [each["signerName"] for each in requests] == [CLIENT_SIGNER] * 2
        assert all(each["username"].startswith("system:bootstrap:") for each in requests)
        assert automatic_approval(workload) == []
        claims = newcomer.clusters.management.admin.list(csrs.ATTESTED_NODES.format(NAMESPACE))
        assert [each["spec"]["nodeName"] for each in claims] == [NAME]
        assert "Forbidden" not in newcomer.signer_log


def automatic_approval(cluster: Client) -> list[dict[str, Any]]:
    """Return the bindings of kubeadm that approve certificates without attestation."""
    return [
        each for each in cluster.list(BINDINGS) if "node-autoapprove" in each["metadata"]["name"]
    ]
