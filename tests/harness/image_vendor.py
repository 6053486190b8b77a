"""The vendor of a fleet's boot images: systemd-measure signs them, and a TPM is measured into."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.verify.attestation.signed_pcrs import policy_digest
from tests.builders.boot_signatures import measurements, pcr_of
from tests.harness import pki
from tests.harness.node import Node
from tests.harness.tpm import SoftwareTpm, TrustDomain

_SYSTEMD_MEASURE = "/lib/systemd/systemd-measure"
_SECURE_BOOT = b"the keys of the vendor"


@dataclass(frozen=True, slots=True)
class ImageVendor:
    """Signs images for the PCRs of its own TPM's banks."""

    directory: Path
    key: rsa.RSAPrivateKey
    tpm: SoftwareTpm

    @property
    def public_key(self) -> str:
        """The key in a policy."""
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
                *(_SYSTEMD_MEASURE, "sign", "--bank=sha256", "--bank=sha384"),
                *(f"--private-key={private}", f"--public-key={public}"),
                *(f"--{name}={self.directory / name}" for name in sections),
                f"--tpm2-device={self.tpm.tcti}",
            ],
            check=True,
            capture_output=True,
        ).stdout

    def rules(self, *revoked: dict[str, bytes]) -> dict[str, Any]:
        """Return `pcrs` of a policy that lets this vendor sign, with images that it revoked."""
        digests = {"revoked": [digest_of(sections) for sections in revoked]} if revoked else {}
        return {
            "selection": {"sha256": [7]},
            "mode": "Enforce",
            "allowed": {"sha256": {"7": [pcr_of([_SECURE_BOOT]).hex()]}},
            "signedBy": [{"keys": [self.public_key], "pcrs": {"sha256": [11]}, **digests}],
        }


@contextmanager
def image_vendor(domain: TrustDomain, directory: Path) -> Iterator[ImageVendor]:
    """Make a vendor, and a TPM on which it signs."""
    # systemd-measure selects no PCR of a bank that its TPM does not have
    with SoftwareTpm(domain, seed="signing", banks=("sha256", "sha384")) as tpm:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        yield ImageVendor(directory, key, tpm)


def image(kernel: bytes) -> dict[str, bytes]:
    """Return the sections of a unified kernel image."""
    return {"linux": kernel, "osrel": b"ID=vendor\n", "cmdline": b"quiet"}


def digest_of(sections: dict[str, bytes], bank: str = "sha256") -> str:
    """Return what the vendor signs of an image at the end of its boot."""
    value = pcr_of(measurements(sections), bank)
    return policy_digest({bank: (11,)}, {bank: {11: value}}).hex()


def boot(
    node: Node,
    sections: dict[str, bytes],
    signatures: bytes,
    *,
    secure_boot: bytes = _SECURE_BOOT,
    added: Sequence[bytes] = (),
) -> None:
    """Measure as firmware, systemd-stub and systemd do, and put the signatures where they do."""
    node.tpm.boot(
        [
            (7, secure_boot),
            *((11, data) for data in measurements(sections)),
            *((12, data) for data in added),
        ]
    )
    path = node.directory / "tpm2-pcr-signature.json"
    path.write_bytes(signatures)
    node.settings = {"pcrSignatureFile": str(path)}
