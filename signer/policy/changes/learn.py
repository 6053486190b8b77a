"""Drafts a policy that allows the PCR values and boots of nodes that are known to be good.

The input is the audit log: its line for each issued certificate has the quoted PCR values, and the
measured boot if the policy asks for the event log. The operator decides which nodes are good; the
draft allows the values that these nodes had.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from common.names import API_GROUP, API_VERSION
from signer.errors import ProblemsError
from signer.kinds.cluster import ClusterKey
from signer.kinds.policy import POLICY_KIND
from signer.policy.load import PolicyFileInvalid, load_policies
from signer.policy.policy import EVENT_LOG_LISTS

_ISSUED: Final = ("verdict", "issued")
"""Event and outcome of the lines that count."""
_INTRODUCTION: Final = """\
# Draft of a policy. It allows the values that these nodes had when they last got a certificate.
# Copy `pcrs` and `eventLog` into your policy: every other setting of this draft has its default.
"""


class LearnError(ProblemsError):
    """The log is not enough for a draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _IssuedRecord:
    """What the log has of the last certificate of a node."""

    node: str
    time: str
    """As `JsonFormatter` writes it: in UTC, so that texts compare as times."""
    pcrs: Mapping[str, Mapping[int, str]]
    measured_boot: Mapping[str, Any] | None

    @property
    def selection(self) -> Mapping[str, list[int]]:
        """Return the quoted PCRs by bank."""
        return {bank: sorted(values) for bank, values in sorted(self.pcrs.items())}


def draft_policy(log: Iterable[str], *, nodes: Sequence[str], cluster: ClusterKey | None) -> str:
    """Return a policy as YAML, for the Cluster of these nodes, that allows the values of each.

    Lines that do not report an issued certificate are skipped. Without `cluster`, the log must have
    these names in one Cluster only: equal names in two Clusters are two nodes. Raises `LearnError`:
    the log has no certificate of a node, or the nodes cannot share a policy.
    """
    key, records = _last_issued(log, nodes, cluster)
    spec = {"clusterRef": {"namespace": key.namespace, "name": key.name}, **_rules(records)}
    document = {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": POLICY_KIND,
        "metadata": {"name": "draft"},
        "spec": spec,
    }
    sources = (
        f"#   {json.dumps(each.node)}, attested {json.dumps(each.time)}\n" for each in records
    )
    text = "".join((_INTRODUCTION, *sources, yaml.safe_dump(document, sort_keys=False, width=100)))
    try:
        load_policies(text)
    except PolicyFileInvalid as error:
        raise LearnError(*error.problems) from error
    warning = warn_of_unset_pcrs(spec["pcrs"]["allowed"])
    return f"# Warning: {warning}.\n{text}" if warning else text


def learn_spec(
    log: Iterable[str], *, nodes: Sequence[str], cluster: ClusterKey | None
) -> tuple[ClusterKey, Mapping[str, Any]]:
    """Return the Cluster of the nodes, and `pcrs` and `eventLog` of their draft.

    Raises `LearnError`, as `draft_policy` does.
    """
    key, records = _last_issued(log, nodes, cluster)
    return key, _rules(records)


def warn_of_unset_pcrs(allowed: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """Return a warning of PCRs for which only 00 or only FF bytes are allowed, or an empty text."""
    unset = [
        f"{bank}:{index}"
        for bank, by_index in allowed.items()
        for index, values in by_index.items()
        if any(set(bytes.fromhex(value)) in ({0x00}, {0xFF}) for value in values)
    ]
    if not unset:
        return ""
    return (
        f"a node measured nothing into {', '.join(unset)}: leave such PCRs out of selection, unless"
        " they must stay unset"
    )


def _rules(records: Sequence[_IssuedRecord]) -> dict[str, Any]:
    rules: dict[str, Any] = {"pcrs": _pcrs(records)}
    event_log = _event_log(records)
    if event_log:
        rules["eventLog"] = event_log
    return rules


def _last_issued(
    log: Iterable[str], nodes: Sequence[str], cluster: ClusterKey | None
) -> tuple[ClusterKey, Sequence[_IssuedRecord]]:
    """Return the Cluster, and the last record of each node.

    The last record has the latest time: the input may be the logs of several replicas, one after
    the other.
    """
    by_cluster: dict[ClusterKey, dict[str, _IssuedRecord]] = {}
    for line in log:
        issued = _issued(line)
        if issued is None or issued[1].node not in nodes:
            continue
        cluster_key, record = issued
        last_by_node = by_cluster.setdefault(cluster_key, {})
        last = last_by_node.setdefault(record.node, record)
        if record.time >= last.time:
            last_by_node[record.node] = record
    if cluster is None and len(by_cluster) > 1:
        several = ", ".join(sorted(str(key) for key in by_cluster))
        raise LearnError(
            f"several Clusters have nodes with these names: {several}; name one with --cluster"
        )
    key = cluster or next(iter(by_cluster), None)
    records = by_cluster.get(key, {}) if key else {}
    missing = [f"the log has no certificate of node {n}" for n in nodes if n not in records]
    if missing or key is None:
        raise LearnError(*missing)
    return key, [records[node] for node in dict.fromkeys(nodes)]


def _issued(line: str) -> tuple[ClusterKey, _IssuedRecord] | None:
    """Return Cluster and record of a line that reports an issued certificate, or `None`."""
    try:
        fields = json.loads(line)
        if (fields["event"], fields["outcome"]) != _ISSUED:
            return None
        namespace, _, name = fields["cluster"].partition("/")
        record = _IssuedRecord(
            node=fields["node"],
            time=_text(fields["time"]),
            pcrs=_values(fields["pcrs"]),
            measured_boot=_measured_boot(fields.get("measuredBoot")),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return ClusterKey(namespace=namespace, name=name), record


def _values(pcrs: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[int, str]]:
    return {
        bank: {int(index): _text(value) for index, value in values.items()}
        for bank, values in pcrs.items()
    }


def _measured_boot(fields: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if fields is None:
        return None
    digests = {rule: [_text(digest) for digest in fields[rule]] for rule in EVENT_LOG_LISTS}
    return {"secureBoot": fields["secureBoot"], **digests}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("digests and times must be strings")
    return value


def _pcrs(records: Sequence[_IssuedRecord]) -> Mapping[str, Any]:
    first = records[0]
    differing = [each.node for each in records if each.selection != first.selection]
    if differing:
        raise LearnError(f"{', '.join(differing)} quoted other PCRs than the first node")
    allowed = {
        bank: {
            str(index): sorted({each.pcrs[bank][index] for each in records}) for index in indices
        }
        for bank, indices in first.selection.items()
    }
    return {"selection": first.selection, "mode": "Enforce", "allowed": allowed}


def _event_log(records: Sequence[_IssuedRecord]) -> Mapping[str, Any]:
    """Return the rules that the boots of all nodes fulfil, or none if there was no event log."""
    boots = [each.measured_boot for each in records if each.measured_boot is not None]
    if not boots:
        return {}
    if len(boots) != len(records):
        raise LearnError("some of these nodes sent an event log and some did not")
    rules: dict[str, Any] = {}
    if all(boot["secureBoot"] is True for boot in boots):
        rules["secureBoot"] = True
    for rule in EVENT_LOG_LISTS:
        if all(boot[rule] for boot in boots):
            rules[rule] = sorted({digest for boot in boots for digest in boot[rule]})
    return rules
