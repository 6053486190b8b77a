"""Q4 with boot images that a vendor signs: systemd-measure signs, and a TPM is measured into."""

from collections.abc import Iterator
from typing import Any

import pytest

from signer.policy.signed_pcr_rules import fingerprint
from tests.harness.fleet import Fleet
from tests.harness.image_vendor import ImageVendor, boot, digest_of, image, image_vendor
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import TrustDomain

OLD, NEW, REVOKED, ROOTKIT = (
    image(kernel) for kernel in (b"kernel 1", b"kernel 2", b"kernel 0", b"rootkit")
)


@pytest.fixture(scope="module")
def signing(vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageVendor]:
    with image_vendor(vendor, tmp_path_factory.mktemp("vendor")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def signed_images(signer: Signer, fleet: Fleet, signing: ImageVendor) -> Iterator[Signer]:
    """Fix Secure Boot, and let the vendor sign its images."""
    policy = of_cluster(fleet.first, pcrs=signing.rules(REVOKED))
    with signer.with_policies({}, policy) as running:
        yield running


def renewal(node: Node) -> str:
    return node.call("renew", "--kubeconfig", str(node.kubeconfig())).complaint


def test_systemd_signs_what_the_signer_computes(signing: ImageVendor) -> None:
    """The tests of the attacks sign themselves; this holds them to systemd."""
    signed = signing.sign(OLD).decode()
    for bank in ("sha256", "sha384"):
        assert digest_of(OLD, bank) in signed
    assert fingerprint(signing.key.public_key()) in signed


def test_nodes_update_one_after_the_other_without_a_change_of_the_policy(
    machines: Machines, signing: ImageVendor
) -> None:
    nodes = [machines.registered() for _ in range(2)]
    for node in nodes:
        boot(node, OLD, signing.sign(OLD))
        assert node.call().status == 0
    for updated in nodes:
        boot(updated, NEW, signing.sign(NEW))
        for node in nodes:
            assert renewal(node) == ""


def test_a_renewal_with_an_unsigned_kernel_is_denied(
    machines: Machines, signing: ImageVendor
) -> None:
    node = machines.registered()
    boot(node, OLD, signing.sign(OLD))
    assert node.call().status == 0
    boot(node, ROOTKIT, signing.sign(OLD))
    assert "PcrPolicyMismatch" in renewal(node)


@pytest.mark.parametrize(
    ("sections", "changes", "reason"),
    [
        (REVOKED, {}, "PcrSignatureRevoked"),
        (OLD, {"secure_boot": b"other keys"}, "PcrPolicyMismatch"),
        (OLD, {"added": (b"init=/bin/sh",)}, "PcrPolicyMismatch"),
    ],
    ids=["revoked", "Secure Boot changed", "command line added"],
)
def test_a_signed_image_in_another_boot_is_denied(
    machines: Machines,
    signing: ImageVendor,
    sections: dict[str, bytes],
    changes: dict[str, Any],
    reason: str,
) -> None:
    node = machines.registered()
    boot(node, sections, signing.sign(sections), **changes)
    call = node.call()
    assert call.status == 1
    assert reason in call.complaint
