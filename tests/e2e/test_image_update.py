"""A kubelet whose node updates to the next image of a vendor; the policy does not change."""

from pathlib import Path

from tests.e2e.joined_node import JoinedNode
from tests.harness.image_vendor import boot, image, image_vendor
from tests.harness.signer import of_cluster
from tests.harness.tpm import TrustDomain


def test_node_stays_in_the_cluster_with_each_image_that_the_vendor_signs(
    joined: JoinedNode, tmp_path: Path
) -> None:
    joined.wait_until_ready()
    node, settings = joined.node, joined.node.settings
    with image_vendor(TrustDomain(tmp_path / "domain"), tmp_path) as vendor:
        policy = of_cluster(node.tenant, pcrs=vendor.rules())
        with joined.signer.with_policies({}, policy):
            for sections in (image(b"kernel 1"), image(b"kernel 2")):
                joined.kubelet.stop()
                boot(node, sections, vendor.sign(sections))
                renewed = joined.renew()
                joined.start_kubelet()
                joined.wait_until_used(renewed)
            known = joined.certificate()
            boot(node, image(b"rootkit"), vendor.sign(image(b"kernel 2")))
            call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
            assert "PcrPolicyMismatch" in call.complaint
            assert joined.certificate() == known
    node.settings = settings
    renewed = joined.renew()
    joined.restart_kubelet()
    joined.wait_until_used(renewed)
