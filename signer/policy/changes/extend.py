"""Adds the learned PCR values and boots of good nodes to a policy that exists.

Only lists of allowed values grow. A rule that the policy does not have is not added, since it would
refuse nodes that the policy allows today.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from signer.policy.changes.learn import LearnError
from signer.policy.load import load_spec
from signer.policy.policy import EVENT_LOG_LISTS, PcrMode, PcrRules, RefusedPolicy


def extend_spec(name: str, spec: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a policy, extended by `learned`, a spec of `signer.policy.changes.learn`.

    Its mode stays: with mode Record, every value is allowed and no list exists. `spec` is not
    changed. Raises `LearnError`: the policy has mode Record, the nodes quoted other PCRs than it
    selects, booted without what it requires, or the result is not a valid policy.
    """
    extended = dict(spec)
    names_machine = "certificateAuthorities" in spec.get("attestationKey", {})
    present = spec.get("pcrs") or {}
    extended["pcrs"] = _extend_pcrs(present, learned["pcrs"], names_machine=names_machine)
    if "eventLog" in spec:
        extended["eventLog"] = _extend_event_log(spec["eventLog"], learned.get("eventLog") or {})
    result = load_spec(name, extended)
    if isinstance(result, RefusedPolicy):
        raise LearnError(*result.problems)
    return extended


def _extend_pcrs(
    present: Mapping[str, Any], learned: Mapping[str, Any], *, names_machine: bool
) -> dict[str, Any]:
    if present.get("mode", PcrMode.RECORD.value) == PcrMode.RECORD.value:
        raise LearnError(
            "the policy has pcrs.mode Record, which allows all values: run learn without --add-to,"
            " and copy pcrs of the draft into the policy with mode Warn or Enforce"
        )
    selected = present.get("selection") or PcrRules().selection
    selection = {bank: sorted(indices) for bank, indices in selected.items()}
    if "signedBy" in present or names_machine:
        learned = _only(learned, selection)
    if selection != learned["selection"]:
        raise LearnError(
            f"the nodes quoted {learned['selection']}, and the policy selects {selection}: put"
            " the policy in force with pcrs.mode Record, wait for renewals, and run learn without"
            " --add-to"
        )
    before = present.get("allowed") or {}
    allowed = {
        bank: {
            index: _union(before.get(bank, {}).get(index, ()), values)
            for index, values in by_index.items()
        }
        for bank, by_index in learned["allowed"].items()
    }
    return {**present, "allowed": allowed}


def _only(learned: Mapping[str, Any], selection: Mapping[str, list[int]]) -> dict[str, Any]:
    """Leave out the PCRs that a vendor signs, and the one that names the machine."""
    quoted = learned["selection"]
    kept = {b: [i for i in quoted.get(b, ()) if i in indices] for b, indices in selection.items()}
    allowed = {b: {str(i): learned["allowed"][b][str(i)] for i in kept[b]} for b in kept}
    return {"selection": kept, "allowed": allowed}


def _extend_event_log(present: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    if not learned:
        raise LearnError("the policy has rules on the event log, and the nodes sent none")
    if present.get("secureBoot") and not learned.get("secureBoot"):
        raise LearnError("the policy requires Secure Boot, and a node booted without it")
    missing = [rule for rule in EVENT_LOG_LISTS if present.get(rule) and rule not in learned]
    if missing:
        raise LearnError(f"a node measured nothing for {', '.join(missing)}")
    lists = {
        rule: _union(present[rule], learned[rule]) for rule in EVENT_LOG_LISTS if present.get(rule)
    }
    return {**present, **lists}


def _union(before: Iterable[str], more: Iterable[str]) -> list[str]:
    return sorted({value.lower() for value in (*before, *more)})
