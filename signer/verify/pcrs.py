"""The quoted PCRs (Q3, Q4): which were asked for, what they held, and whether that is allowed.

A value counts only when the TPM signed a digest over it, in the bank and selection that today's
policy asks for (go-attestation CVE-2022-0317, tpm2-tools CVE-2024-29039).
"""

import hashlib
import hmac
from collections.abc import Mapping

from common.tpm.attest import Attest
from common.tpm.constants import BANKS, HASHES
from common.tpm.pcrs import PcrSelection
from signer.errors import (
    PcrBankUnavailable,
    PcrDigestMismatch,
    PcrPolicyMismatch,
    PcrSelectionMismatch,
)
from signer.policy import PcrMode, PcrValues, Policy

Pcrs = Mapping[str, Mapping[int, bytes]]
"""Digests by bank and PCR."""


def verify_pcrs(attest: Attest, values: Pcrs, *, asked: PcrSelection, signature_hash: int) -> Pcrs:
    """Check that the TPM signed exactly these values of exactly the PCRs that are asked for (Q3).

    `pcrDigest` is made with the hash of the signature scheme, not with that of a bank (TPM 2.0
    Part 3, section 18.4).

    Raises:
        PcrBankUnavailable: the TPM has not allocated a bank.
        PcrSelectionMismatch: quote or values are of other PCRs.
        PcrDigestMismatch: other values were quoted.

    """
    quoted = attest.selection
    if quoted.keys() == asked.keys():
        missing = [bank for bank, indices in quoted.items() if not indices]
        if missing:
            raise PcrBankUnavailable(f"the TPM has not allocated {', '.join(missing)} PCRs")
    given = {bank: tuple(sorted(indices)) for bank, indices in values.items()}
    if quoted != dict(asked) or given != dict(asked):
        raise PcrSelectionMismatch("the quoted PCRs are not those that are asked for")
    digest = hashlib.new(HASHES[signature_hash])
    for bank in sorted(asked, key=BANKS.__getitem__):
        for index in asked[bank]:
            digest.update(values[bank][index])
    if not hmac.compare_digest(digest.digest(), attest.pcr_digest):
        raise PcrDigestMismatch("the PCR values are not those that were quoted")
    return values


def verify_pcr_policy(values: Pcrs, allowed: PcrValues, policy: Policy) -> None:
    """Check quoted values against the policy (Q4); mode Record takes any, to be read later.

    Raises:
        PcrPolicyMismatch: which PCRs differ is for the operator alone (`detail`).

    """
    if policy.pcr_mode is PcrMode.RECORD:
        return
    differences = [
        f"{bank}:{index} is {value.hex()}, allowed {_listed(allowed, bank, index)}"
        for bank, indices in values.items()
        for index, value in sorted(indices.items())
        if value not in allowed.get(bank, {}).get(index, frozenset())
    ]
    if differences or not values:
        raise PcrPolicyMismatch(
            "a PCR holds a value that the policy does not allow", detail="; ".join(differences)
        )


def _listed(allowed: PcrValues, bank: str, index: int) -> str:
    values = allowed.get(bank, {}).get(index, frozenset())
    return " or ".join(sorted(value.hex() for value in values)) or "nothing"
