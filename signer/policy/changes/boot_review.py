"""Compares what nodes measured with a policy: values that it does not allow, or that no node has.

An operator reviews the groups, and adds or removes the values of one.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from signer.kinds.attested_node import MeasuredValues
from signer.kinds.cluster import ClusterKey
from signer.policy.changes.edits import (
    ReviewedPolicy,
    Spec,
    Value,
    listed_digests,
    set_end,
    with_values,
    without_values,
)
from signer.policy.policy import EVENT_LOG_LISTS, MACHINE_PCR, MACHINE_PCR_BANK, PcrMode

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
    "firmware": lambda measured: json.dumps(measured.firmware) if measured.firmware else "",
    "Secure Boot": lambda measured: {True: "on", False: "off", None: ""}[measured.secure_boot],
}
"""A node chooses the text of its firmware: quoted, it is no part of the question around it."""
_DIGESTS: Final[Mapping[str, Callable[[MeasuredValues], Sequence[str]]]] = {
    "platform key": lambda measured: measured.platform_keys,
    "signature database": lambda measured: measured.signature_databases,
    "boot loader": lambda measured: measured.boot_loaders,
}


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

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"

    @property
    def present(self) -> MeasuredValues | None:
        """Return what it measured last."""
        return self.refused or self.attested


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


def find_recorded(reviewed: ReviewedPolicy, nodes: Iterable[NodeBoot]) -> list[Group]:
    """Return what the nodes of a policy with mode Record attested with, the largest group first.

    These values would be the first ones of all lists, also of those that `eventLog` has not. A node
    that has not quoted all selected PCRs is left out.
    """
    if reviewed.policy.pcrs.mode is not PcrMode.RECORD:
        return []
    needed, lists = _needed(reviewed), reviewed.lists(None)

    def is_new(value: Value) -> bool:
        if value.is_of_pcr:
            return value.where in needed
        has_rules = reviewed.policy.event_log is not None
        return has_rules and value.digest not in lists.get(value.where, ())

    return _group(
        reviewed,
        (
            (node, None, tuple(filter(is_new, _values_of(node.attested))))
            for node in nodes
            if node.attested is not None and not missing_pcrs(reviewed, node.attested)
        ),
    )


def missing_pcrs(reviewed: ReviewedPolicy, measured: MeasuredValues | None) -> Sequence[str]:
    """Return the PCRs of which a policy has lists, or would have, and a boot has no value."""
    known = set() if measured is None else {value.where for value in _values_of(measured)}
    return sorted(":".join(where) for where in _needed(reviewed) - known)


def find_refused(reviewed: ReviewedPolicy, nodes: Iterable[NodeBoot], now: datetime) -> list[Group]:
    """Return the values of the nodes that the policy does not allow, the largest group first."""
    ended = reviewed.ended(now)

    def rows() -> Iterable[tuple[NodeBoot, int | None, tuple[Value, ...]]]:
        for node in nodes:
            if node.present is not None:
                variant = reviewed.variant_of(node.machine_labels)
                lists, values = reviewed.lists(variant), _values_of(node.present)
                lacking = (v for v in values if _lacks(lists.get(v.where), ended, v))
                yield node, variant, tuple(lacking)

    return _group(reviewed, rows())


def find_unused(reviewed: ReviewedPolicy, nodes: Iterable[NodeBoot]) -> list[Group]:
    """Return the values of the policy that none of its nodes has, each as a group without nodes.

    Nothing is known of a list if a node has not attested with a value for it. The last value of a
    list is left out: each list needs one.
    """
    by_variant: dict[int | None, list[NodeBoot]] = {}
    for node in nodes:
        by_variant.setdefault(reviewed.variant_of(node.machine_labels), []).append(node)
    every = [node for having in by_variant.values() for node in having]
    groups = []
    for variant in (None, *range(len(reviewed.policy.pcrs.variants))):
        for where, allowed in reviewed.lists(variant).items():
            is_pcr = where[0] not in EVENT_LOG_LISTS
            if not is_pcr and variant is not None:
                continue
            used = _used(where, by_variant.get(variant, []) if is_pcr else every)
            unused = sorted(allowed - used)
            if used and len(unused) < len(allowed):
                values = [Value(where, digest) for digest in unused]
                groups += [group_of(reviewed, variant, (value,)) for value in values]
    return groups


def add_values(spec: Spec, group: Group, until: datetime | None = None) -> dict[str, Any]:
    """Return the spec of the policy with the values of a group; those of PCRs count `until`."""
    changed = with_values(spec, group.variant, group.values)
    set_end(changed, _pcr_digests(group), until)
    return changed


def remove_values(spec: Spec, group: Group) -> dict[str, Any]:
    """Return the spec of the policy without the values of a group."""
    changed = without_values(spec, group.variant, group.values)
    set_end(changed, _pcr_digests(group) - listed_digests(changed), None)
    return changed


def allows_elsewhere(reviewed: ReviewedPolicy, group: Group, now: datetime) -> bool:
    """Return whether a list has a PCR value of a group, of another PCR or other Machines."""
    return not listed_digests(reviewed.spec).isdisjoint(_pcr_digests(group) - reviewed.ended(now))


def group_of(
    reviewed: ReviewedPolicy,
    variant: int | None,
    values: tuple[Value, ...],
    nodes: Iterable[NodeBoot] = (),
) -> Group:
    """Return the group of these values."""
    return Group(
        policy=reviewed.policy.name,
        variant=variant,
        machine_labels=reviewed.labels_of(variant),
        values=values,
        nodes=tuple(nodes),
    )


def _group(
    reviewed: ReviewedPolicy, rows: Iterable[tuple[NodeBoot, int | None, tuple[Value, ...]]]
) -> list[Group]:
    """Return a group for each variant and values, the largest group first."""
    found: dict[tuple[int | None, tuple[Value, ...]], list[NodeBoot]] = {}
    for node, variant, values in rows:
        if values:
            found.setdefault((variant, values), []).append(node)
    groups = (group_of(reviewed, *key, having) for key, having in found.items())
    return sorted(groups, key=lambda group: (-len(group.nodes), group.digest))


def _needed(reviewed: ReviewedPolicy) -> set[tuple[str, ...]]:
    """Return the PCRs of which the policy has lists; in mode Record, those that would get one."""
    rules = reviewed.policy.pcrs
    if rules.mode is not PcrMode.RECORD:
        variants = (None, *range(len(rules.variants)))
        lists = {where for variant in variants for where in reviewed.lists(variant)}
        return {where for where in lists if where[0] not in EVENT_LOG_LISTS}
    of_machine = {(MACHINE_PCR_BANK, str(MACHINE_PCR))} if rules.names_machine else set()
    selected: set[tuple[str, ...]] = {
        (bank, str(index)) for bank, indices in rules.selection.items() for index in indices
    }
    return selected - of_machine


def _pcr_digests(group: Group) -> frozenset[str]:
    return frozenset(value.digest for value in group.values if value.is_of_pcr)


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
    indices = sorted({int(v.where[1]) for v in group.values if v.is_of_pcr})
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
    if value.is_of_pcr and value.digest in ended:
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
