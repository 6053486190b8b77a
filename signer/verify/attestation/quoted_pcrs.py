"""The quoted PCRs (Q3, Q4): their selection, their values, and the values that the policy allows.

A value counts only if the TPM signed a digest over it, in the banks and the selection that the
policy requires now (go-attestation CVE-2022-0317, tpm2-tools CVE-2024-29039).
"""

import hashlib
import hmac
from collections.abc import Mapping

from common.errors import Denied
from common.tpm.attest import Attest
from common.tpm.constants import BANKS, HASHES
from common.tpm.pcrs import PcrSelection
from signer.errors import (
    PcrBankUnavailable,
    PcrDigestMismatch,
    PcrPolicyMismatch,
    PcrSelectionMismatch,
)
from signer.policy.policy import MACHINE_PCR, MACHINE_PCR_BANK, PcrMode, PcrRules, PcrValues
from signer.verify.attestation.signed_pcrs import is_signed_by_vendor

Pcrs = Mapping[str, Mapping[int, bytes]]
"""Digests by bank and PCR."""


def verify_pcrs(
    attest: Attest, values: Pcrs, *, requested: PcrSelection, signature_hash: int
) -> Pcrs:
    """Verify that the TPM signed exactly these values of exactly the requested PCRs (Q3).

    The hash of `pcrDigest` is that of the signature scheme, not that of a bank (TPM 2.0 Part 3,
    section 18.4).

    Raises:
        PcrBankUnavailable: the TPM has not allocated a bank.
        PcrSelectionMismatch: the quote or the values are of other PCRs.
        PcrDigestMismatch: the TPM quoted other values.

    """
    quoted = attest.selection
    if quoted.keys() == requested.keys():
        missing = [bank for bank, indices in quoted.items() if not indices]
        if missing:
            raise PcrBankUnavailable(f"the TPM has not allocated {', '.join(missing)} PCRs")
    provided = {bank: tuple(sorted(indices)) for bank, indices in values.items()}
    if quoted != dict(requested) or provided != dict(requested):
        raise PcrSelectionMismatch("the quoted PCRs are not the requested ones")
    digest = hashlib.new(HASHES[signature_hash])
    for bank in sorted(requested, key=BANKS.__getitem__):
        for index in requested[bank]:
            digest.update(values[bank][index])
    if not hmac.compare_digest(digest.digest(), attest.pcr_digest):
        raise PcrDigestMismatch("the PCR values are not the quoted ones")
    return values


def verify_pcr_policy(
    values: Pcrs, allowed: PcrValues, rules: PcrRules, signatures: bytes | None
) -> tuple[Denied, ...]:
    """Check quoted values against the policy (Q4); return the alarm about other values.

    `allowed` has the values that count for this Machine, `signatures` what the node sent beside
    the quote. Mode Record accepts all values without an alarm, mode Warn with one.

    Raises:
        PcrPolicyMismatch: mode Enforce, and a value is neither allowed nor signed. Only its
            `detail`, for the operator, names the PCRs.
        PcrSignaturesMalformed, PcrSignatureRevoked: mode Enforce; see `is_signed_by_vendor`.

    """
    if rules.mode is PcrMode.RECORD:
        return ()
    try:
        _require_good_values(values, allowed, rules, signatures)
    except Denied as mismatch:
        if rules.mode is PcrMode.WARN:
            return (mismatch,)
        raise
    return ()


def _require_good_values(
    values: Pcrs, allowed: PcrValues, rules: PcrRules, signatures: bytes | None
) -> None:
    signed = {
        (bank, index)
        for each in rules.signed_by
        if is_signed_by_vendor(values, each, signatures)
        for bank, indices in each.pcrs.items()
        for index in indices
    }
    decided = signed | ({(MACHINE_PCR_BANK, MACHINE_PCR)} if rules.names_machine else set())
    differences = [
        f"{bank}:{index} is {value.hex()}, allowed {_format_allowed(allowed, bank, index)}"
        for bank, indices in values.items()
        for index, value in sorted(indices.items())
        if (bank, index) not in decided
        and value not in allowed.get(bank, {}).get(index, frozenset())
    ]
    if differences or not values:
        raise PcrPolicyMismatch(
            "the policy does not allow the value of a PCR", detail="; ".join(differences)
        )


def _format_allowed(allowed: PcrValues, bank: str, index: int) -> str:
    values = allowed.get(bank, {}).get(index, frozenset())
    return " or ".join(sorted(value.hex() for value in values)) or "no listed value"
