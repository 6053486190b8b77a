"""Learning mode: from what good nodes showed to a policy that allows just that.

The audit log holds the quoted PCR values of every certificate that was issued, and what the event
log showed where a policy asked for one: run with mode Record, join nodes that are known to be good,
and draft. A draft allows what it saw, whatever that was: which nodes are good is for people to say.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from common.names import API_GROUP, API_VERSION
from signer.model import ClusterKey
from signer.policy import PolicyFileInvalid, load_policies
from signer.policy.load import POLICY_KIND

_ISSUED: Final = ("verdict", "issued")
"""Event and outcome of the lines to learn from."""
_RULES: Final = ("platformKeys", "signatureDatabases", "bootLoaders")
_INTRODUCTION: Final = """\
# A draft: it allows what these nodes showed when they last got a certificate. What is not in it has
# its default, so copy `pcrs` and `eventLog` to where they belong.
"""


class LearnError(Exception):
    """The log does not tell enough; `problems` are all reasons, one line each."""

    def __init__(self, *problems: str) -> None:
        """Keep every problem."""
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a node showed when its last certificate was issued."""

    node: str
    time: str
    pcrs: Mapping[str, Mapping[int, str]]
    measured_boot: Mapping[str, Any] | None

    @property
    def selection(self) -> Mapping[str, list[int]]:
        """Which PCRs were quoted."""
        return {bank: sorted(values) for bank, values in sorted(self.pcrs.items())}


def draft_policy(log: Iterable[str], *, nodes: Sequence[str], cluster: ClusterKey | None) -> str:
    """Return a policy, as text, for the Cluster of these nodes, that allows what they showed.

    Lines that are no verdicts on certificates that were issued are passed over. Without `cluster`,
    the nodes have to be of one: names say nothing across Clusters.

    Raises:
        NothingLearned: the log does not tell of each node, or not the same of all.

    """
    owner, seen = _last_seen(log, nodes, cluster)
    spec: dict[str, Any] = {
        "clusterRef": {"namespace": owner.namespace, "name": owner.name},
        "pcrs": _pcrs(seen),
    }
    rules = _event_log(seen)
    if rules:
        spec["eventLog"] = rules
    document = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": POLICY_KIND,
        "metadata": {"name": "draft"},
        "spec": spec,
    }
    sources = (f"#   {json.dumps(each.node)}, attested {json.dumps(each.time)}\n" for each in seen)
    text = "".join((_INTRODUCTION, *sources, yaml.safe_dump(document, sort_keys=False, width=100)))
    try:
        load_policies(text)
    except PolicyFileInvalid as e:
        raise LearnError(*e.problems) from e
    return text


def _last_seen(
    log: Iterable[str], nodes: Sequence[str], cluster: ClusterKey | None
) -> tuple[ClusterKey, Sequence[_Seen]]:
    """Return the Cluster, and what each node showed last."""
    found: dict[ClusterKey, dict[str, _Seen]] = {}
    for line in log:
        issued = _issued(line)
        if issued is not None and issued[1].node in nodes:
            found.setdefault(issued[0], {})[issued[1].node] = issued[1]
    if cluster is None and len(found) > 1:
        several = ", ".join(sorted(f"{key.namespace}/{key.name}" for key in found))
        raise LearnError(f"nodes of these names are in several clusters: {several}")
    owner = cluster or next(iter(found), None)
    seen = found.get(owner, {}) if owner else {}
    missing = [f"the log tells of no certificate for node {n}" for n in nodes if n not in seen]
    if missing or owner is None:
        raise LearnError(*missing)
    return owner, [seen[node] for node in dict.fromkeys(nodes)]


def _issued(line: str) -> tuple[ClusterKey, _Seen] | None:
    """Read the line of a certificate that was issued; `None` for any other."""
    try:
        told = json.loads(line)
        if (told["event"], told["outcome"]) != _ISSUED:
            return None
        namespace, _, name = told["cluster"].partition("/")
        seen = _Seen(
            node=told["node"],
            time=told["time"],
            pcrs=_values(told["pcrs"]),
            measured_boot=_measured_boot(told.get("measuredBoot")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return ClusterKey(namespace=namespace, name=name), seen


def _values(pcrs: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[int, str]]:
    return {
        bank: {int(index): _text(value) for index, value in values.items()}
        for bank, values in pcrs.items()
    }


def _measured_boot(told: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if told is None:
        return None
    digests = {rule: [_text(digest) for digest in told[rule]] for rule in _RULES}
    return {"secureBoot": told["secureBoot"], **digests}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a digest is no text")
    return value


def _pcrs(seen: Sequence[_Seen]) -> Mapping[str, Any]:
    first = seen[0]
    differing = [each.node for each in seen if each.selection != first.selection]
    if differing:
        raise LearnError(f"other PCRs were quoted of {', '.join(differing)} than of the first")
    allowed = {
        bank: {str(index): sorted({each.pcrs[bank][index] for each in seen}) for index in indices}
        for bank, indices in first.selection.items()
    }
    return {"selection": first.selection, "mode": "Enforce", "allowed": allowed}


def _event_log(seen: Sequence[_Seen]) -> Mapping[str, Any]:
    """Merge what event logs showed; a rule only where every node's did, and none without logs."""
    boots = [each.measured_boot for each in seen if each.measured_boot is not None]
    if not boots:
        return {}
    if len(boots) != len(seen):
        raise LearnError("some of these nodes sent an event log, and some did not")
    rules: dict[str, Any] = {}
    if all(boot["secureBoot"] is True for boot in boots):
        rules["secureBoot"] = True
    for rule in _RULES:
        if all(boot[rule] for boot in boots):
            rules[rule] = sorted({digest for boot in boots for digest in boot[rule]})
    return rules
