"""Q4 with boot images that a vendor signs: systemd-measure signs, and a TPM is measured into."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.policy.signed_pcr_rules import fingerprint
from signer.verify.attestation.signed_pcrs import policy_digest
from tests.builders.boot_signatures import measurements, pcr_of
from tests.harness import pki
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import SoftwareTpm, TrustDomain

SYSTEMD_MEASURE = "/lib/systemd/systemd-measure"
SECURE_BOOT = b"the keys of the vendor"


@dataclass(frozen=True, slots=True)
class ImageVendor:
    """Signs images for the PCRs of its own TPM's banks."""

    directory: Path
    key: rsa.RSAPrivateKey
    tpm: SoftwareTpm

    @property
    def public_key(self) -> str:
        key, form = self.key.public_key(), PublicFormat.SubjectPublicKeyInfo
        return key.public_bytes(Encoding.PEM, form).decode()

    def sign(self, sections: dict[str, bytes]) -> bytes:
        """Return the file that the image carries in its section .pcrsig."""
        private, public = self.directory / "key.pem", self.directory / "key.pub"
        private.write_bytes(pki.key_pem(self.key))
        public.write_text(self.public_key)
        for name, data in sections.items():
            (self.directory / name).write_bytes(data)
        return subprocess.run(
            [
                *(SYSTEMD_MEASURE, "sign", "--bank=sha256", "--bank=sha384"),
                *(f"--private-key={private}", f"--public-key={public}"),
                *(f"--{name}={self.directory / name}" for name in sections),
                f"--tpm2-device={self.tpm.tcti}",
            ],
            check=True,
            capture_output=True,
        ).stdout


@pytest.fixture(scope="module")
def image_vendor(
    vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ImageVendor]:
    # systemd-measure selects no PCR of a bank that its TPM does not have
    with SoftwareTpm(vendor, seed="signing", banks=("sha256", "sha384")) as tpm:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        yield ImageVendor(tmp_path_factory.mktemp("vendor"), key, tpm)


def image(kernel: bytes) -> dict[str, bytes]:
    return {"linux": kernel, "osrel": b"ID=vendor\n", "cmdline": b"quiet"}


OLD, NEW, ROOTKIT = (image(kernel) for kernel in (b"kernel 1", b"kernel 2", b"rootkit"))


def digest_of(sections: dict[str, bytes], bank: str = "sha256") -> str:
    value = pcr_of(measurements(sections), bank)
    return policy_digest({bank: (11,)}, {bank: {11: value}}).hex()


@pytest.fixture(scope="module", autouse=True)
def signing(signer: Signer, fleet: Fleet, image_vendor: ImageVendor) -> Iterator[Signer]:
    """Fix Secure Boot, and let the vendor sign its images."""
    rule = {"keys": [image_vendor.public_key], "pcrs": {"sha256": [11]}}
    pcrs = {
        "selection": {"sha256": [7]},
        "mode": "Enforce",
        "allowed": {"sha256": {"7": [pcr_of([SECURE_BOOT]).hex()]}},
        "signedBy": [rule],
    }
    with signer.with_policies({}, of_cluster(fleet.first, pcrs=pcrs)) as running:
        yield running


def boot(node: Node, sections: dict[str, bytes], signatures: bytes) -> None:
    """Measure as firmware and systemd-stub do, and put the signatures where systemd-stub does."""
    node.tpm.boot([(7, SECURE_BOOT), *((11, data) for data in measurements(sections))])
    path = node.directory / "tpm2-pcr-signature.json"
    path.write_bytes(signatures)
    node.settings = {"pcrSignatureFile": str(path)}


def renewal(node: Node) -> str:
    return node.call("renew", "--kubeconfig", str(node.kubeconfig())).complaint


def test_systemd_signs_what_the_signer_computes(image_vendor: ImageVendor) -> None:
    """The tests of the attacks sign themselves; this holds them to systemd."""
    signed = image_vendor.sign(OLD).decode()
    for bank in ("sha256", "sha384"):
        assert digest_of(OLD, bank) in signed
    assert fingerprint(image_vendor.key.public_key()) in signed


def test_a_node_updates_to_the_next_image_without_a_change_of_the_policy(
    machines: Machines, image_vendor: ImageVendor
) -> None:
    node = machines.registered()
    boot(node, OLD, image_vendor.sign(OLD))
    assert node.call().status == 0
    boot(node, NEW, image_vendor.sign(NEW))
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0


def test_a_renewal_with_an_unsigned_kernel_is_denied(
    machines: Machines, image_vendor: ImageVendor
) -> None:
    node = machines.registered()
    boot(node, OLD, image_vendor.sign(OLD))
    assert node.call().status == 0
    boot(node, ROOTKIT, image_vendor.sign(OLD))
    assert "PcrPolicyMismatch" in renewal(node)
