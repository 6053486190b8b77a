"""Boot images whose vendor signs PCR 11: what systemd-stub measures and systemd-measure signs."""

import base64
import hashlib
import json
from collections.abc import Mapping

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from signer.policy.signed_pcr_rules import fingerprint
from signer.verify.attestation.signed_pcrs import policy_digest

PHASES = ("enter-initrd", "leave-initrd", "sysinit", "ready")
VendorKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def measurements(sections: Mapping[str, bytes]) -> list[bytes]:
    """Return what systemd-stub and then systemd extend PCR 11 with until the boot has ended."""
    measured = [part for name, data in sections.items() for part in (f".{name}\0".encode(), data)]
    return [*measured, *(phase.encode() for phase in PHASES)]


def pcr_of(measured: list[bytes], bank: str = "sha256") -> bytes:
    """Return the value of a PCR that was zero before these events."""
    value = bytes(hashlib.new(bank).digest_size)
    for data in measured:
        value = hashlib.new(bank, value + hashlib.new(bank, data).digest()).digest()
    return value


def signature_of(
    key: VendorKey, values: Mapping[int, bytes], *, bank: str = "sha256", **changes: object
) -> dict[str, object]:
    """Return one entry of `tpm2-pcr-signature.json`; `changes` replace its members."""
    digest = policy_digest({bank: tuple(values)}, {bank: values})
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(digest, padding.PKCS1v15(), hashes.SHA256())
    else:
        signature = key.sign(digest, ec.ECDSA(hashes.SHA256()))
    entry = {
        "pcrs": list(values),
        "pkfp": fingerprint(key.public_key()),
        "pol": digest.hex(),
        "sig": base64.b64encode(signature).decode(),
    }
    return {**entry, **changes}


def signature_file(*entries: object, bank: str = "sha256") -> bytes:
    """Return a file with these entries of one bank."""
    return json.dumps({bank: entries}).encode()
