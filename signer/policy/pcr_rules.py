"""Loads the rules of a policy on PCRs and event log.

A rule on a PCR that is not quoted is refused: it would be compared with values that no TPM signed
(go-attestation CVE-2022-0317). So is a rule without values.
"""

from collections.abc import Mapping
from typing import Final

from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES, PCR_COUNT
from signer.policy.policy import BANKS, EventLogRules, PcrMode, PcrValues, PcrVariant
from signer.policy.section import Section

Selection = Mapping[str, tuple[int, ...]]

_SECURE_BOOT_PCR: Final = 7
_BOOT_LOADER_PCR: Final = 4
"""The PCRs that firmware extends (TCG PC Client Platform Firmware Profile, section 3.3.4)."""


def read_selection(pcrs: Section, default: Selection) -> Selection:
    """Load `selection`: at least one bank, each with at least one PCR."""
    if "selection" not in pcrs:
        return default
    section = pcrs.section("selection")
    selection = {bank: _indices(section, bank) for bank in BANKS if bank in section}
    section.reject_unknown_keys()
    if not selection:
        section.add_problem(f"must select PCRs of a bank ({', '.join(BANKS)})")
    return selection or default


def _indices(section: Section, bank: str) -> tuple[int, ...]:
    indices = section.value(bank)
    if not isinstance(indices, list) or not indices:
        section.add_problem("must be a non-empty list", bank)
    elif not all(type(i) is int and 0 <= i < PCR_COUNT for i in indices):
        section.add_problem(f"must hold PCR numbers from 0 to {PCR_COUNT - 1}", bank)
    elif len(set(indices)) != len(indices):
        section.add_problem("must not repeat a PCR", bank)
    else:
        return tuple(sorted(indices))
    return ()


def read_allowed(owner: Section, selection: Selection, mode: PcrMode, *, needed: bool) -> PcrValues:
    """Load `allowed`: exactly the selected PCRs, each with at least one value."""
    if "allowed" not in owner:
        if needed and mode is not PcrMode.RECORD:
            owner.add_problem(f"is required in mode {mode.value}", "allowed")
        return {}
    section = owner.section("allowed")
    if mode is PcrMode.RECORD:
        section.add_problem("must be absent in mode Record")
    allowed = {bank: _bank(section.section(bank), bank, selection[bank]) for bank in selection}
    section.reject_unknown_keys()
    return allowed


def _bank(section: Section, bank: str, indices: tuple[int, ...]) -> Mapping[int, frozenset[bytes]]:
    size = DIGEST_SIZES[BANK_ALGORITHMS[bank]]
    values = {index: _digests(section, str(index), frozenset({size})) for index in indices}
    for index, digests in values.items():
        if not digests and str(index) not in section:
            section.add_problem("is required: the PCR is selected", str(index))
    section.reject_unknown_keys()
    return values


def _digests(section: Section, key: str, sizes: frozenset[int]) -> frozenset[bytes]:
    digests: set[bytes] = set()
    for text in section.strings(key, ()):
        try:
            digest = bytes.fromhex(text)
        except ValueError:
            digest = b""
        if len(digest) in sizes and digest.hex() == text.lower():
            digests.add(digest)
        else:
            section.add_problem("must hold digests in hex, of the size of the bank", key)
    return frozenset(digests)


def read_variants(pcrs: Section, selection: Selection, mode: PcrMode) -> tuple[PcrVariant, ...]:
    """Load `variants`: the allowed values of Machines with some labels; the first match wins."""
    if "variants" not in pcrs:
        return ()
    if mode is PcrMode.RECORD:
        pcrs.add_problem("must be absent in mode Record", "variants")
    value = pcrs.value("variants")
    if not isinstance(value, list) or not value:
        pcrs.add_problem("must be a non-empty list", "variants")
        return ()
    return tuple(_variant(pcrs.item("variants", i), selection, mode) for i in range(len(value)))


def _variant(section: Section, selection: Selection, mode: PcrMode) -> PcrVariant:
    selector = section.section("machineSelector")
    labels = selector.mapping("matchLabels")
    selector.reject_unknown_keys()
    # In mode Record, `variants` itself is the problem.
    mode = PcrMode.ENFORCE if mode is PcrMode.RECORD else mode
    allowed = read_allowed(section, selection, mode, needed=True)
    section.reject_unknown_keys()
    return PcrVariant(match_labels=labels, allowed=allowed)


def read_event_log(spec: Section, selection: Selection) -> EventLogRules | None:
    """Load `eventLog`: at least one rule, each on a quoted PCR."""
    if "eventLog" not in spec:
        return None
    section = spec.section("eventLog")
    sizes = frozenset(DIGEST_SIZES[BANK_ALGORITHMS[bank]] for bank in selection)
    rules = EventLogRules(
        secure_boot=section.boolean("secureBoot", default=False),
        platform_keys=_digests(section, "platformKeys", sizes),
        signature_databases=_digests(section, "signatureDatabases", sizes),
        boot_loaders=_digests(section, "bootLoaders", sizes),
    )
    section.reject_unknown_keys()
    by_pcr = {
        _SECURE_BOOT_PCR: rules.secure_boot or rules.platform_keys or rules.signature_databases,
        _BOOT_LOADER_PCR: rules.boot_loaders,
    }
    if not any(by_pcr.values()):
        section.add_problem("must have a rule")
    for pcr, rule in by_pcr.items():
        if rule and not any(pcr in indices for indices in selection.values()):
            section.add_problem(f"needs PCR {pcr} in pcrs.selection")
    return rules
