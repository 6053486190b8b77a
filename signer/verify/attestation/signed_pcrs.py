"""PCR values that the vendor of a boot image has signed (Q4).

systemd-measure signs the digest of the TPM policy PolicyPCR, which depends on the selection and the
values of the PCRs. Here the digest is computed from the quoted values: `pol` in the file only finds
the signature. A signature never expires, so a policy lists the digests that it no longer accepts.
Source: systemd-measure(1); TPM 2.0 Part 3, section 23.7, and Part 1, section 19.7.
"""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from common.formats import strict_json
from common.public_keys import PublicKey
from common.tpm.pcrs import PcrSelection, encode_selection
from signer.errors import PcrSignatureRevoked, PcrSignaturesMalformed
from signer.policy.policy import PcrSignatureRules

_POLICY_PCR: Final = (0x0000017F).to_bytes(4, "big")
"""TPM_CC_PolicyPCR (TPM 2.0 Part 2, section 6.5.2)."""
_DIGEST_SIZE: Final = hashlib.sha256().digest_size
_MAX_CANDIDATES: Final = 8
"""Signatures for one digest that are verified; each key of a policy needs one."""


def is_signed_by_vendor(
    values: Mapping[str, Mapping[int, bytes]], rules: PcrSignatureRules, signatures: bytes | None
) -> bool:
    """Return whether a key of the policy signed the quoted values of all PCRs of these rules.

    `signatures` is a file of systemd-measure, and belongs to the node.

    Raises:
        PcrSignaturesMalformed: the file cannot be read.
        PcrSignatureRevoked: such a signature exists, and the policy revokes its digest.

    """
    documents = _load(signatures)
    for bank, indices in rules.pcrs.items():
        digest = policy_digest({bank: indices}, values)
        found = _candidates(documents, bank, indices, digest)
        if not any(
            is_signed_by(rules.keys[fingerprint], signature, digest)
            for fingerprint, signature in islice(found, _MAX_CANDIDATES)
            if fingerprint in rules.keys
        ):
            return False
        if digest in rules.revoked:
            raise PcrSignatureRevoked(
                "the policy revokes this boot state", detail=f"{bank}: {digest.hex()}"
            )
    return True


def policy_digest(selection: PcrSelection, values: Mapping[str, Mapping[int, bytes]]) -> bytes:
    """Return the digest of PolicyPCR in a new session whose hash is SHA-256."""
    pcrs = hashlib.sha256()
    for bank, indices in selection.items():
        for index in indices:
            pcrs.update(values[bank][index])
    policy = bytes(_DIGEST_SIZE) + _POLICY_PCR + encode_selection(selection) + pcrs.digest()
    return hashlib.sha256(policy).digest()


def _load(signatures: bytes | None) -> dict[str, object]:
    if signatures is None:
        return {}
    try:
        return strict_json.take_object(strict_json.load(signatures))
    except strict_json.JsonMalformed as error:
        raise PcrSignaturesMalformed(f"signatures of PCR values: {error}") from None


def _candidates(
    documents: Mapping[str, object], bank: str, indices: tuple[int, ...], digest: bytes
) -> Iterator[tuple[str, bytes]]:
    """Yield fingerprint and signature of each entry for these PCRs and this digest."""
    try:
        entries = strict_json.take_array(documents.get(bank, []))
        for entry in map(strict_json.take_object, entries):
            if (entry.get("pcrs"), entry.get("pol")) == ([*indices], digest.hex()):
                yield str(entry.get("pkfp")), strict_json.take_base64(entry.get("sig"))
    except strict_json.JsonMalformed as error:
        raise PcrSignaturesMalformed(f"signatures of PCR values: {error}") from None


def is_signed_by(key: PublicKey, signature: bytes, message: bytes) -> bool:
    """Return whether a vendor's key signed a message, with SHA-256."""
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
        else:
            key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
