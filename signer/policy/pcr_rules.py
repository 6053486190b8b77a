"""The measured part of a policy: which PCRs are quoted, and what they and the event log must show.

A rule about a PCR that is not quoted would never be held against anything that a TPM signed
(go-attestation CVE-2022-0317), and one without values would allow nothing or everything: both are
problems of the file.
"""

from collections.abc import Mapping
from typing import Final

from common.tpm.constants import BANKS as BANK_ALGORITHMS
from common.tpm.constants import DIGEST_SIZES, PCR_COUNT
from signer.policy.policy import BANKS, EventLogRules, PcrValues, PcrVariant
from signer.policy.section import Section

Selection = Mapping[str, tuple[int, ...]]

_SECURE_BOOT_PCR: Final = 7
_BOOT_LOADER_PCR: Final = 4
"""Where firmware measures each (TCG PC Client Platform Firmware Profile, section 3.3.4)."""


def read_selection(pcrs: Section, default: Selection) -> Selection:
    """Read `selection`: bank to a list of PCRs, neither of them empty."""
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
        section.add_problem("must be a list that is not empty", bank)
    elif not all(type(i) is int and 0 <= i < PCR_COUNT for i in indices):
        section.add_problem(f"must hold PCR numbers from 0 to {PCR_COUNT - 1}", bank)
    elif len(set(indices)) != len(indices):
        section.add_problem("has a PCR twice", bank)
    else:
        return tuple(sorted(indices))
    return ()


def read_allowed(owner: Section, selection: Selection, *, needed: bool, enforce: bool) -> PcrValues:
    """Read `allowed`: exactly the selected PCRs, each with a value at least."""
    if "allowed" not in owner:
        if needed:
            owner.add_problem("mode Enforce needs values", "allowed")
        return {}
    section = owner.section("allowed")
    if not enforce:
        section.add_problem("mode Record never looks at them")
    allowed = {bank: _bank(section.section(bank), bank, selection[bank]) for bank in selection}
    section.reject_unknown_keys()
    return allowed


def _bank(section: Section, bank: str, indices: tuple[int, ...]) -> Mapping[int, frozenset[bytes]]:
    size = DIGEST_SIZES[BANK_ALGORITHMS[bank]]
    values = {index: _digests(section, str(index), frozenset({size})) for index in indices}
    for index, digests in values.items():
        if not digests and str(index) not in section:
            section.add_problem("missing, though it is selected", str(index))
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
            section.add_problem("must hold digests of the bank in hex", key)
    return frozenset(digests)


def read_variants(pcrs: Section, selection: Selection, *, enforce: bool) -> tuple[PcrVariant, ...]:
    """Read `variants`: allowed values for Machines with some labels; the first that fits wins."""
    if "variants" not in pcrs:
        return ()
    if not enforce:
        pcrs.add_problem("mode Record never looks at them", "variants")
    value = pcrs.value("variants")
    if not isinstance(value, list) or not value:
        pcrs.add_problem("must be a list that is not empty", "variants")
        return ()
    return tuple(_variant(pcrs.item("variants", i), selection) for i in range(len(value)))


def _variant(section: Section, selection: Selection) -> PcrVariant:
    selector = section.section("machineSelector")
    labels = selector.mapping("matchLabels")
    selector.reject_unknown_keys()
    allowed = read_allowed(section, selection, needed=True, enforce=True)
    section.reject_unknown_keys()
    return PcrVariant(match_labels=labels, allowed=allowed)


def read_event_log(spec: Section, selection: Selection) -> EventLogRules | None:
    """Read `eventLog`: rules on what was measured, at least one, on PCRs that are quoted."""
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
        section.add_problem("has no rule")
    for pcr, asked in by_pcr.items():
        if asked and not any(pcr in indices for indices in selection.values()):
            section.add_problem(f"needs PCR {pcr}, which is not selected")
    return rules
