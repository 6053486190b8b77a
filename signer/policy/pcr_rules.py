"""Loads the rules of a policy on PCRs and event log.

A rule on a PCR that is not quoted is refused: it would be compared with values that no TPM signed
(go-attestation CVE-2022-0317). So is a rule without values.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES
from signer.policy.pcr_values import read_digests, read_ends, read_indices
from signer.policy.policy import (
    BANKS,
    MACHINE_PCR,
    MACHINE_PCR_BANK,
    EventLogRules,
    PcrMode,
    PcrRules,
    PcrValues,
    PcrVariant,
)
from signer.policy.section import Section
from signer.policy.signed_pcr_rules import read_signed_by, with_signed_pcrs

Selection = Mapping[str, tuple[int, ...]]

_SECURE_BOOT_PCR: Final = 7
_BOOT_LOADER_PCR: Final = 4
"""The PCRs that firmware extends (TCG PC Client Platform Firmware Profile, section 3.3.4)."""


def read_pcrs(section: Section, defaults: PcrRules, *, names_machine: bool) -> PcrRules:
    """Load `pcrs`: which PCRs are quoted, and the values that are allowed.

    With `names_machine`, PCR 6 is quoted too, and has no allowed values: it differs for each VM.
    """
    selection = _selection(section, defaults.selection)
    mode = section.choice("mode", defaults.mode)
    is_compared = mode is not PcrMode.RECORD
    if names_machine and is_compared and MACHINE_PCR in selection.get(MACHINE_PCR_BANK, ()):
        problem = f"must not have PCR {MACHINE_PCR}: it names the machine, and is quoted besides"
        section.add_problem(problem, "selection")
    variants = tuple(_variant(item, selection) for item in section.items("variants"))
    allowed = _allowed(section, selection)
    signed_by = read_signed_by(section, selection)
    until = read_ends(section, "until")
    rules = PcrRules(
        selection=selection, mode=mode, allowed=allowed, variants=variants, until=until
    )
    rules = with_signed_pcrs(rules, signed_by)
    return _with_machine_pcr(rules) if names_machine else rules


def _with_machine_pcr(rules: PcrRules) -> PcrRules:
    indices = {*rules.selection.get(MACHINE_PCR_BANK, ()), MACHINE_PCR}
    selection = {**rules.selection, MACHINE_PCR_BANK: tuple(sorted(indices))}
    return replace(rules, selection=selection, names_machine=True)


def _selection(pcrs: Section, default: Selection) -> Selection:
    """Load `selection`: at least one bank, each with at least one PCR."""
    if "selection" not in pcrs:
        return default
    section = pcrs.section("selection")
    selection = {bank: read_indices(section, bank) for bank in BANKS if bank in section}
    if not selection:
        section.add_problem(f"must select PCRs of a bank ({', '.join(BANKS)})")
    return selection or default


def _allowed(parent: Section, selection: Selection) -> PcrValues:
    """Load `allowed`: exactly the selected PCRs, each with at least one value."""
    if "allowed" not in parent:
        return {}
    section = parent.section("allowed")
    return {bank: _bank(section.section(bank), bank, selection[bank]) for bank in selection}


def _bank(section: Section, bank: str, indices: tuple[int, ...]) -> Mapping[int, frozenset[bytes]]:
    size = DIGEST_SIZES[BANK_ALGORITHMS[bank]]
    values = {index: read_digests(section, str(index), frozenset({size})) for index in indices}
    for index, digests in values.items():
        if not digests and str(index) not in section:
            section.add_problem("is required: the PCR is selected", str(index))
    return values


def _variant(section: Section, selection: Selection) -> PcrVariant:
    """Load an item of `variants`: the allowed values of Machines with some labels."""
    labels = section.section("machineSelector").mapping("matchLabels")
    section.require("allowed")
    return PcrVariant(match_labels=labels, allowed=_allowed(section, selection))


def read_event_log(spec: Section, selection: Selection) -> EventLogRules | None:
    """Load `eventLog`: at least one rule, each on a quoted PCR."""
    if "eventLog" not in spec:
        return None
    section = spec.section("eventLog")
    sizes = frozenset(DIGEST_SIZES[BANK_ALGORITHMS[bank]] for bank in selection)
    rules = EventLogRules(
        secure_boot=section.boolean("secureBoot", default=False),
        platform_keys=read_digests(section, "platformKeys", sizes),
        signature_databases=read_digests(section, "signatureDatabases", sizes),
        boot_loaders=read_digests(section, "bootLoaders", sizes),
    )
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
