"""Compares what nodes measured with a policy: values that it does not allow, or that no node has.

An operator reviews the groups, and adds or removes the values of one. A value belongs to one list
of the policy: that of a PCR, in `allowed` of the policy or of a variant, or one of `eventLog`.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from common.formats.strict_json import format_time
from signer.kinds.attested_node import MeasuredValues
from signer.kinds.cluster import ClusterKey
from signer.policy.policy import EVENT_LOG_LISTS, Policy

_USES: Final = {
    0: "firmware",
    1: "settings of the firmware",
    2: "option ROMs",
    4: "boot loader",
    5: "partition table",
    7: "Secure Boot",
}
"""What PCRs hold (TCG PC Client Platform Firmware Profile, section 3.3.4)."""
_TEXTS: Final[Mapping[str, Callable[[MeasuredValues], str]]] = {
    "firmware": lambda measured: measured.firmware,
    "Secure Boot": lambda measured: {True: "on", False: "off", None: ""}[measured.secure_boot],
}
_DIGESTS: Final[Mapping[str, Callable[[MeasuredValues], Sequence[str]]]] = {
    "platform key": lambda measured: measured.platform_keys,
    "signature database": lambda measured: measured.signature_databases,
    "boot loader": lambda measured: measured.boot_loaders,
}


class Value(NamedTuple):
    """A digest, and the list for it: the bank and number of a PCR, or a rule of `eventLog`."""

    where: tuple[str, ...]
    digest: str

    def __str__(self) -> str:
        return f"{':'.join(self.where)} {self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBoot:
    """A node, with what it measured."""

    cluster: ClusterKey
    name: str
    machine_labels: Mapping[str, str]
    attested: MeasuredValues | None
    """What it last attested with; `None` if its claim has nothing about that."""
    refused: MeasuredValues | None
    """What the signer refused since then."""

    @property
    def present(self) -> MeasuredValues | None:
        """Return what it measured last."""
        return self.refused or self.attested


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedPolicy:
    """A valid policy, and its `spec`."""

    policy: Policy
    spec: Mapping[str, Any]

    def variant_of(self, node: NodeBoot) -> int | None:
        """Return the variant whose values count for a node, `None` for those of the policy."""
        for place, variant in enumerate(self.policy.pcrs.variants):
            if variant.match_labels.items() <= node.machine_labels.items():
                return place
        return None

    def group(
        self, variant: int | None, values: tuple[Value, ...], nodes: Iterable[NodeBoot] = ()
    ) -> "Group":
        """Return the group of these values."""
        labels = {} if variant is None else self.policy.pcrs.variants[variant].match_labels
        return Group(
            policy=self.policy.name,
            variant=variant,
            machine_labels=labels,
            values=values,
            nodes=tuple(nodes),
        )

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

    def allows_elsewhere(self, group: "Group", now: datetime) -> bool:
        """Return whether a list has a PCR value of a group, of another PCR or other Machines."""
        return not listed_digests(self.spec).isdisjoint(_pcr_digests(group) - self.ended(now))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Values for one policy, and the nodes that have exactly these."""

    policy: str
    variant: int | None
    """The place in `pcrs.variants` whose values count for these nodes."""
    machine_labels: Mapping[str, str]
    """The labels of that variant; none if there is no variant."""
    values: tuple[Value, ...]
    nodes: tuple[NodeBoot, ...] = ()

    @property
    def digest(self) -> str:
        """Return what names the group: the same policy and values always have the same digest."""
        labels = sorted(self.machine_labels.items())
        content = json.dumps([self.policy, labels, self.values])
        return hashlib.sha256(content.encode()).hexdigest()


def find_refused(reviewed: ReviewedPolicy, nodes: Iterable[NodeBoot], now: datetime) -> list[Group]:
    """Return the values of the nodes that the policy does not allow, the largest group first."""
    found: dict[tuple[int | None, tuple[Value, ...]], list[NodeBoot]] = {}
    for node in nodes:
        if node.present is None:
            continue
        variant = reviewed.variant_of(node)
        lists, ended = reviewed.lists(variant), reviewed.ended(now)
        values = tuple(
            value
            for value in _values_of(node.present)
            if _lacks(lists.get(value.where), ended, value)
        )
        if values:
            found.setdefault((variant, values), []).append(node)
    groups = (
        reviewed.group(variant, values, nodes=having) for (variant, values), having in found.items()
    )
    return sorted(groups, key=lambda group: (-len(group.nodes), group.digest))


def find_unused(reviewed: ReviewedPolicy, nodes: Iterable[NodeBoot]) -> list[Group]:
    """Return the values of the policy that none of its nodes has, each as a group without nodes.

    Nothing is known of a list if a node has not attested with a value for it. The last value of a
    list is left out: each list needs one.
    """
    by_variant: dict[int | None, list[NodeBoot]] = {}
    for node in nodes:
        by_variant.setdefault(reviewed.variant_of(node), []).append(node)
    every = [node for having in by_variant.values() for node in having]
    groups = []
    for variant in (None, *range(len(reviewed.policy.pcrs.variants))):
        for where, allowed in reviewed.lists(variant).items():
            is_pcr = not _is_of_event_log(where)
            if not is_pcr and variant is not None:
                continue
            used = _used(where, by_variant.get(variant, []) if is_pcr else every)
            unused = sorted(allowed - used)
            if used and len(unused) < len(allowed):
                groups += [reviewed.group(variant, (Value(where, digest),)) for digest in unused]
    return groups


def add_values(
    spec: Mapping[str, Any], group: Group, until: datetime | None = None
) -> dict[str, Any]:
    """Return the spec of the policy with the values of a group; those of PCRs count `until`."""
    changed = with_values(spec, group.variant, group.values)
    set_end(changed, _pcr_digests(group), until)
    return changed


def remove_values(spec: Mapping[str, Any], group: Group) -> dict[str, Any]:
    """Return the spec of the policy without the values of a group."""
    changed = without_values(spec, group.variant, group.values)
    set_end(changed, _pcr_digests(group) - listed_digests(changed), None)
    return changed


def with_values(
    spec: Mapping[str, Any], variant: int | None, values: Iterable[Value]
) -> dict[str, Any]:
    """Return a copy of the spec with these values in the lists of a variant or of the policy."""
    changed = copy.deepcopy(dict(spec))
    for value in values:
        digests = _list_in(changed, variant, value)
        digests[:] = sorted({*map(str.lower, digests), value.digest})
    return changed


def without_values(
    spec: Mapping[str, Any], variant: int | None, values: Iterable[Value]
) -> dict[str, Any]:
    """Return a copy of the spec without these values in the lists of a variant or of the policy."""
    changed = copy.deepcopy(dict(spec))
    for value in values:
        digests = _list_in(changed, variant, value)
        digests[:] = [digest for digest in digests if digest.lower() != value.digest]
    return changed


def listed_digests(spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the values in all lists of PCRs."""
    pcrs = spec.get("pcrs") or {}
    return frozenset(
        digest.lower()
        for part in (pcrs, *(pcrs.get("variants") or ()))
        for by_index in (part.get("allowed") or {}).values()
        for digests in by_index.values()
        for digest in digests
    )


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


def _pcr_digests(group: Group) -> frozenset[str]:
    return frozenset(v.digest for v in group.values if not _is_of_event_log(v.where))


def _is_of_event_log(where: tuple[str, ...]) -> bool:
    return where[0] in EVENT_LOG_LISTS


def describe_change(group: Group) -> str:
    """Return in words which PCRs differ, and what the event logs of the nodes show about it."""
    after = [node.present for node in group.nodes if node.present]
    before = [node.attested for node in group.nodes if node.attested and node.refused]
    shown = []
    for what, text in _TEXTS.items():
        old, new = ({text(m) for m in each if text(m)} for each in (before, after))
        if new and old != new:
            words = (" or ".join(sorted(each)) for each in (old, new) if each)
            shown.append(f"{what} {' to '.join(words)}")
    for what, digests in _DIGESTS.items():
        old, new = ({d for m in each for d in digests(m)} for each in (before, after))
        if old and not new <= old:
            shown.append(f"another {what}")
    indices = sorted({int(v.where[1]) for v in group.values if not _is_of_event_log(v.where)})
    names = (f"{i} ({_USES[i]})" if i in _USES and not shown else str(i) for i in indices)
    return ", ".join([f"PCR {', '.join(names)}", *shown] if indices else shown)


def _values_of(measured: MeasuredValues) -> Sequence[Value]:
    digests = (measured.platform_keys, measured.signature_databases, measured.boot_loaders)
    return [
        *(
            Value((bank, index), digest)
            for bank, by_index in sorted(measured.pcrs.items())
            for index, digest in sorted(by_index.items(), key=_place)
        ),
        *(
            Value((name,), digest)
            for name, each in zip(EVENT_LOG_LISTS, digests, strict=True)
            for digest in sorted(each)
        ),
    ]


def _place(item: tuple[str, str]) -> tuple[int, str]:
    """Order PCRs by their number. The schema of AttestedNodes accepts any text as a number."""
    return len(item[0]), item[0]


def _lacks(allowed: frozenset[str] | None, ended: frozenset[str], value: Value) -> bool:
    """Return whether a list has values of the same bank, and this one does not count."""
    if not _is_of_event_log(value.where) and value.digest in ended:
        return allowed is not None
    return (
        allowed is not None
        and value.digest not in allowed
        and any(len(digest) == len(value.digest) for digest in allowed)
    )


def _used(where: tuple[str, ...], nodes: Sequence[NodeBoot]) -> set[str]:
    """Return the values that nodes have; nothing if one has none, or if there is no node."""
    used = set()
    for node in nodes:
        attested = () if node.attested is None else _values_of(node.attested)
        refused = () if node.refused is None else _values_of(node.refused)
        digests = {value.digest for value in (*attested, *refused) if value.where == where}
        if not digests:
            return set()
        used |= digests
    return used


def _list_in(spec: dict[str, Any], variant: int | None, value: Value) -> list[str]:
    if _is_of_event_log(value.where):
        digests: list[str] = spec["eventLog"][value.where[0]]
    else:
        part = spec["pcrs"] if variant is None else spec["pcrs"]["variants"][variant]
        bank, index = value.where
        digests = part["allowed"][bank][index]
    return digests
