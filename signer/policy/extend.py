"""Adds the learned PCR values and boots of good nodes to a policy that exists.

Only lists of allowed values grow. A rule that the policy does not have is not added, since it would
refuse nodes that the policy allows today.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from signer.policy.learn import LearnError
from signer.policy.load import load_spec
from signer.policy.policy import RefusedPolicy

_LISTS: Final = ("platformKeys", "signatureDatabases", "bootLoaders")


def extend_spec(name: str, spec: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a policy, extended by `learned`, a spec of `signer.policy.learn`.

    A policy without rules for PCRs gets the learned ones. `spec` is not changed.

    Raises:
        LearnError: the nodes quoted other PCRs than the policy selects, booted without what it
            requires, or the result is not a valid policy.

    """
    extended = dict(spec)
    extended["pcrs"] = _extend_pcrs(spec.get("pcrs"), learned["pcrs"])
    if "eventLog" in spec:
        extended["eventLog"] = _extend_event_log(spec["eventLog"], learned.get("eventLog") or {})
    result = load_spec(name, extended)
    if isinstance(result, RefusedPolicy):
        raise LearnError(*result.problems)
    return extended


def _extend_pcrs(present: Mapping[str, Any] | None, learned: Mapping[str, Any]) -> dict[str, Any]:
    if not present:
        return dict(learned)
    selection = {bank: sorted(indices) for bank, indices in present.get("selection", {}).items()}
    if selection != learned["selection"]:
        raise LearnError(
            f"the nodes quoted {learned['selection']}, and the policy selects {selection}: record"
            " certificates under this policy first"
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


def _extend_event_log(present: Mapping[str, Any], learned: Mapping[str, Any]) -> dict[str, Any]:
    if not learned:
        raise LearnError("the policy has rules on the event log, and the nodes sent none")
    if present.get("secureBoot") and not learned.get("secureBoot"):
        raise LearnError("the policy requires Secure Boot, and a node booted without it")
    missing = [rule for rule in _LISTS if present.get(rule) and rule not in learned]
    if missing:
        raise LearnError(f"a node measured nothing for {', '.join(missing)}")
    lists = {rule: _union(present[rule], learned[rule]) for rule in _LISTS if present.get(rule)}
    return {**present, **lists}


def _union(before: Iterable[str], more: Iterable[str]) -> list[str]:
    return sorted({value.lower() for value in (*before, *more)})
