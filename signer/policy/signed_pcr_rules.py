"""Loads `pcrs.signedBy`: PCRs whose values the vendor of the boot image signs.

Root on a node can extend PCR 11 to any value that was ever signed. So another PCR has to say that
the firmware started the vendor's image: PCR 4 (the image) or PCR 7 (Secure Boot), with fixed or
signed values. PCR 12 has what was added to the image: command lines, credentials, extensions.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from common.public_keys import InvalidKey, PublicKey, require_supported_key
from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES
from signer.policy.pcr_values import read_digests, read_indices
from signer.policy.policy import BANKS, PcrRules, PcrSignatureRules, PcrValues
from signer.policy.section import Section

_BOOTED_BY: Final = {4, 7}
_IMAGE_PCR: Final = 11
_ADDITIONS_PCR: Final = 12
"""systemd-stub extends these (systemd-stub(7))."""
_DIGEST_SIZE: Final = 32
"""Bytes of a policy digest: systemd uses sessions with SHA-256."""


def read_signed_by(
    pcrs: Section, selection: Mapping[str, tuple[int, ...]]
) -> tuple[PcrSignatureRules, ...]:
    """Load `signedBy`: a list of keys with the PCRs that they sign, beside the selected PCRs."""
    return tuple(_rule(item, selection) for item in pcrs.items("signedBy"))


def with_signed_pcrs(rules: PcrRules, signed_by: tuple[PcrSignatureRules, ...]) -> PcrRules:
    """Return the rules with the signed PCRs in the selection, and PCR 12 where PCR 11 is signed.

    A policy that neither selects PCR 12 nor has it signed allows only its value after a start
    without additions, which is zero.
    """
    selection = {bank: set(indices) for bank, indices in rules.selection.items()}
    additions: dict[str, Mapping[int, frozenset[bytes]]] = {}
    for bank in BANKS:
        signed = {index for each in signed_by for index in each.pcrs.get(bank, ())}
        if _IMAGE_PCR in signed and _ADDITIONS_PCR not in signed | selection.get(bank, set()):
            zero = bytes(DIGEST_SIZES[BANK_ALGORITHMS[bank]])
            additions[bank] = {_ADDITIONS_PCR: frozenset({zero})}
            signed.add(_ADDITIONS_PCR)
        if signed:
            selection.setdefault(bank, set()).update(signed)
    return replace(
        rules,
        selection={bank: tuple(sorted(indices)) for bank, indices in selection.items()},
        allowed=_merged(rules.allowed, additions),
        variants=tuple(
            replace(variant, allowed=_merged(variant.allowed, additions))
            for variant in rules.variants
        ),
        signed_by=signed_by,
    )


def fingerprint(key: PublicKey) -> str:
    """Return what systemd writes as `pkfp`: the SHA-256 of OpenSSL's i2d_PublicKey, in hex."""
    if isinstance(key, rsa.RSAPublicKey):
        encoded = key.public_bytes(Encoding.DER, PublicFormat.PKCS1)
    else:
        encoded = key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return hashlib.sha256(encoded).hexdigest()


def _merged(allowed: PcrValues, additions: PcrValues) -> PcrValues:
    return {
        bank: {**allowed.get(bank, {}), **additions.get(bank, {})}
        for bank in {**allowed, **additions}
    }


def _rule(section: Section, selection: Mapping[str, tuple[int, ...]]) -> PcrSignatureRules:
    keys = {}
    for entry, text in section.entries("keys"):
        key = read_vendor_key(text)
        if key is None:
            section.add_problem("must be a public key as PEM: RSA, P-256 or P-384", entry)
        else:
            keys[fingerprint(key)] = key
    section.require("keys")
    pcrs = section.section("pcrs")
    signed = {bank: _indices(pcrs, bank, selection) for bank in BANKS if bank in pcrs}
    if not signed:
        pcrs.add_problem(f"must have PCRs of a bank ({', '.join(BANKS)})")
    revoked = read_digests(section, "revoked", frozenset({_DIGEST_SIZE}))
    return PcrSignatureRules(keys=keys, pcrs=signed, revoked=revoked)


def read_vendor_key(pem: str) -> PublicKey | None:
    """Return the public key of an image's vendor, `None` if it is not RSA, P-256 or P-384."""
    try:
        return require_supported_key(load_pem_public_key(pem.encode()))
    except (InvalidKey, UnsupportedAlgorithm, ValueError, TypeError):
        return None


def _indices(pcrs: Section, bank: str, selection: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    indices = read_indices(pcrs, bank)
    selected = set(selection.get(bank, ()))
    if selected & set(indices):
        pcrs.add_problem("must not have PCRs of selection: their values are in allowed", bank)
    if indices and not _BOOTED_BY & {*selected, *indices}:
        pcrs.add_problem("needs PCR 4 or 7 here or in selection: root can extend the others", bank)
    return indices
