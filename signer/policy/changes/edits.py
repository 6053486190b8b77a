"""Edits the lists of a policy that say which boots are allowed, and says what an edit changes.

A value belongs to one list: that of a PCR, in `allowed` of the policy or of a variant, or one of
`eventLog`. An edit returns another `spec`; the one that was read stays as it is.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from common.formats.strict_json import format_time
from signer.policy.load import load_spec
from signer.policy.policy import EVENT_LOG_LISTS, PcrMode, Policy, RefusedPolicy

Spec = Mapping[str, Any]
_UNSET: Final = ({0x00}, {0xFF})
"""The bytes of a PCR into which nothing was measured."""


class EditInvalid(ValueError):
    """The policy would be invalid."""


class Value(NamedTuple):
    """A digest, and the list for it: the bank and number of a PCR, or a rule of `eventLog`."""

    where: tuple[str, ...]
    digest: str

    def __str__(self) -> str:
        return f"{':'.join(self.where)} {self.digest}"

    @property
    def is_of_pcr(self) -> bool:
        """Return whether the list is that of a PCR."""
        return self.where[0] not in EVENT_LOG_LISTS

    @property
    def is_unset(self) -> bool:
        """Return whether it is the value of a PCR into which nothing was measured."""
        return self.is_of_pcr and set(bytes.fromhex(self.digest)) in _UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedPolicy:
    """A valid policy, and its `spec`."""

    policy: Policy
    spec: Spec

    @classmethod
    def of(cls, name: str, spec: Spec) -> "ReviewedPolicy":
        """Return the policy with this spec. Raises `EditInvalid`."""
        policy = load_spec(name, spec)
        if isinstance(policy, RefusedPolicy):
            raise EditInvalid(f"the policy would be invalid: {'; '.join(policy.problems)}")
        return cls(policy=policy, spec=spec)

    def variant_of(self, machine_labels: Mapping[str, str]) -> int | None:
        """Return the variant whose values count for a Machine, `None` for those of the policy."""
        for place, variant in enumerate(self.policy.pcrs.variants):
            if variant.match_labels.items() <= machine_labels.items():
                return place
        return None

    def labels_of(self, variant: int | None) -> Mapping[str, str]:
        """Return the labels of the Machines of a variant."""
        return {} if variant is None else self.policy.pcrs.variants[variant].match_labels

    def lists(self, variant: int | None) -> Mapping[tuple[str, ...], frozenset[str]]:
        """Return the lists that count for the nodes of a variant."""
        pcrs = self.spec.get("pcrs") or {}
        part = pcrs if variant is None else pcrs["variants"][variant]
        event_log = self.spec.get("eventLog") or {}
        lists = {
            (bank, index): digests
            for bank, by_index in (part.get("allowed") or {}).items()
            for index, digests in by_index.items()
        } | {(name,): event_log[name] for name in EVENT_LOG_LISTS if event_log.get(name)}
        return {where: frozenset(map(str.lower, digests)) for where, digests in lists.items()}

    def ended(self, now: datetime) -> frozenset[str]:
        """Return the values of PCRs that count no more."""
        ends = self.policy.pcrs.until.items()
        return frozenset(digest.hex() for digest, end in ends if end <= now)


def with_values(spec: Spec, variant: int | None, values: Iterable[Value]) -> dict[str, Any]:
    """Return the spec with these values in the lists of a variant or of the policy.

    Lists of PCRs in mode Record are the first ones: the mode becomes Warn.
    """
    changed = copy.deepcopy(dict(spec))
    for value in values:
        digests = _list_in(changed, variant, value)
        digests[:] = sorted({*map(str.lower, digests), value.digest})
    pcrs = changed.get("pcrs") or {}
    if pcrs.get("allowed") and _mode(changed) == PcrMode.RECORD.value:
        pcrs["mode"] = PcrMode.WARN.value
    return changed


def without_values(spec: Spec, variant: int | None, values: Iterable[Value]) -> dict[str, Any]:
    """Return the spec without these values in the lists of a variant or of the policy."""
    changed = copy.deepcopy(dict(spec))
    for value in values:
        digests = _list_in(changed, variant, value)
        digests[:] = [digest for digest in digests if digest.lower() != value.digest]
    return changed


def listed_digests(spec: Spec) -> frozenset[str]:
    """Return the values in all lists of PCRs."""
    return frozenset(value.digest for _, value in _listed(spec) if value.is_of_pcr)


def set_end(spec: dict[str, Any], digests: frozenset[str], until: datetime | None) -> None:
    """Let these values count until then, or without an end."""
    if not digests:
        return
    pcrs = spec["pcrs"]
    ends = [each for each in pcrs.pop("until", ()) if each["value"].lower() not in digests]
    if until is not None:
        ends += [{"value": digest, "time": format_time(until)} for digest in sorted(digests)]
    if ends:
        pcrs["until"] = ends


def describe_edit(before: Spec, after: Spec) -> list[str]:
    """Return a line for each value that is added, removed or gets another end, and for the mode."""
    lines = []
    if _mode(before) != _mode(after):
        lines.append(f"pcrs.mode: {_mode(before)} to {_mode(after)}")
    old, new, old_ends, new_ends = _listed(before), _listed(after), _ends(before), _ends(after)
    lines += [f"added{machines}: {value}" for machines, value in sorted(new - old)]
    lines += [f"removed{machines}: {value}" for machines, value in sorted(old - new)]
    for machines, value in sorted(new):
        end, former = (ends.get(value.digest) for ends in (new_ends, old_ends))
        if value.is_of_pcr and end != former:
            what = "counts without the end that it had" if end is None else f"counts until {end}"
            lines.append(f"{what}{machines}: {value}")
    return lines


def _listed(spec: Spec) -> frozenset[tuple[str, Value]]:
    """Return all values, each with words for the Machines of its variant."""
    pcrs, event_log = spec.get("pcrs") or {}, spec.get("eventLog") or {}
    parts = [("", pcrs)]
    for variant in pcrs.get("variants") or ():
        labels = variant["machineSelector"]["matchLabels"]
        parts.append((f" for Machines with {describe_labels(labels)}", variant))
    of_pcrs = {
        (machines, Value((bank, index), digest.lower()))
        for machines, part in parts
        for bank, by_index in (part.get("allowed") or {}).items()
        for index, digests in by_index.items()
        for digest in digests
    }
    of_event_log = {
        ("", Value((name,), digest.lower()))
        for name in EVENT_LOG_LISTS
        for digest in event_log.get(name) or ()
    }
    return frozenset(of_pcrs | of_event_log)


def describe_labels(labels: Mapping[str, str]) -> str:
    """Return labels as words."""
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _ends(spec: Spec) -> Mapping[str, str]:
    ends = (spec.get("pcrs") or {}).get("until") or ()
    return {each["value"].lower(): str(each["time"]) for each in ends}


def _mode(spec: Spec) -> str:
    mode: str = (spec.get("pcrs") or {}).get("mode", PcrMode.RECORD.value)
    return mode


def _list_in(spec: dict[str, Any], variant: int | None, value: Value) -> list[str]:
    """Return a list; an empty one that is added to the spec if there is none."""
    digests: list[str]
    if value.is_of_pcr:
        pcrs = spec.setdefault("pcrs", {})
        part = pcrs if variant is None else pcrs["variants"][variant]
        bank, index = value.where
        digests = part.setdefault("allowed", {}).setdefault(bank, {}).setdefault(index, [])
    else:
        digests = spec["eventLog"].setdefault(value.where[0], [])
    return digests
