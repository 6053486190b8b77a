"""Each alert of the chart fires when it must, and only then. Promtool evaluates the rules."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.packaging.signer.promtool import PromtoolFailed, promtool

CLUSTER: Final = "team-a/workload"
DAY: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An alert and the metrics that it sees, with a value for each minute."""

    alert: str
    series: Mapping[str, str]
    at: str
    """Time of the evaluation. The first value of a series is that of 0m."""
    firing: Mapping[str, str] | None = None
    """Labels of the alert that must fire, `None` if it must not fire."""


def sample(name: str, **labels: str) -> str:
    """Return a series of the signer's metrics in the notation of Prometheus."""
    return (
        f"node_attestation_{name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}"
    )


def verdicts(outcome: str, reason: str, **labels: str) -> str:
    """Return the series of a verdict on an offer."""
    return sample("verdicts_total", cluster=CLUSTER, outcome=outcome, reason=reason, **labels)


def lost_lines(kind: str) -> str:
    """Return the series of lines that were lost."""
    return sample("log_lines_lost_total", kind=kind, pod="one")


OWNED: Final = {"namespace": "team-a", "cluster": CLUSTER}
UNSERVED: Final = {"cluster": CLUSTER, "reason": "PolicyMissing"}
ANCHOR: Final = {"policy": "vendors", "subject": "CN=Root", "fingerprint": "0123456789abcdef"}
LIST: Final = {"policy": "vendors", "source": "/etc/vendor.crl"}
ACTION: Final = verdicts("waiting", "OperatorActionRequired")
REFUSED: Final = sample("cache_refused_objects_total", namespace="team-a")
PENDING: Final = sample("pending_requests", **OWNED)
KUBECONFIG: Final = sample("kubeconfig_not_after_seconds", **OWNED)
SLOW: Final = sample("circuit_breaker_open", **OWNED)
INVALID: Final = sample("trust_anchors_invalid", policy="vendors")
EXPIRY: Final = sample("trust_anchor_not_after_seconds", **ANCHOR)
REPLICAS: Final = sample("replicas", pod="one")
SKEW: Final = sample("clock_skew_seconds", pod="one")
NEXT_UPDATE: Final = sample("revocation_list_next_update_seconds", **LIST)
UNMATCHED: Final = sample("revocation_lists_unmatched", policy="vendors")

READY: Final = sample("ready", pod="one")
POLICY: Final = {"source": "object", "policy": "production"}

FIRING: Final = {
    "no metrics for 5 minutes": Case(
        alert="NodeAttestationSignerAbsent", series={}, at="6m", firing={}
    ),
    "no replica is ready": Case(
        alert="NodeAttestationSignerAbsent",
        series={READY: "0x10", sample("ready", pod="two"): "0x10"},
        at="6m",
        firing={},
    ),
    "a refused node": Case(
        alert="NodeAttestationRenewalRefused",
        series={sample("refused_nodes", pod="one", reason="PcrPolicyMismatch", **OWNED): "2x10"},
        at="6m",
        firing={**OWNED, "reason": "PcrPolicyMismatch"},
    ),
    "an overdue node": Case(
        alert="NodeAttestationRenewalOverdue",
        series={sample("overdue_nodes", pod="one", **OWNED): "1x20"},
        at="16m",
        firing=OWNED,
    ),
    "a refused node with 23 hours left": Case(
        alert="NodeAttestationCertificateEnds",
        series={
            sample("certificate_not_after_seconds", renewal="", **OWNED): f"{5 * DAY}x10",
            sample("certificate_not_after_seconds", renewal="Refused", **OWNED): "82800x10",
        },
        at="6m",
        firing=OWNED,
    ),
    "policy invalid for 5 minutes": Case(
        alert="NodeAttestationPolicyInvalid",
        series={sample("policy_valid", pod="one", **POLICY): "0x10"},
        at="6m",
        firing=POLICY,
    ),
    "first verdict of its kind": Case(
        alert="NodeAttestationSignerAlarm",
        series={ACTION: "_x10 1x5"},
        at="12m",
        firing={"cluster": CLUSTER, "reason": "OperatorActionRequired"},
    ),
    "one more verdict": Case(
        alert="NodeAttestationSignerAlarm",
        series={ACTION: "1x30 2x5"},
        at="33m",
        firing={"cluster": CLUSTER, "reason": "OperatorActionRequired"},
    ),
    "first verdict after a restart": Case(
        alert="NodeAttestationSignerAlarm",
        series={
            verdicts("waiting", "OperatorActionRequired", pod="old"): "1x30 stale",
            verdicts("waiting", "OperatorActionRequired", pod="new"): "_x31 1x5",
        },
        at="33m",
        firing={"cluster": CLUSTER, "reason": "OperatorActionRequired"},
    ),
    "first warning": Case(
        alert="NodeAttestationRuleOnlyWarns",
        series={verdicts("alarm", "PcrPolicyMismatch"): "_x10 1x5"},
        at="12m",
        firing={"cluster": CLUSTER, "outcome": "alarm", "reason": "PcrPolicyMismatch"},
    ),
    "four denials": Case(
        alert="NodeAttestationRequestsDenied",
        series={verdicts("denied", "EndorsementKeyMismatch"): "_x10 1 2 3 4x20"},
        at="30m",
        firing={"cluster": CLUSTER, "outcome": "denied", "reason": "EndorsementKeyMismatch"},
    ),
    "pending for 30 minutes": Case(
        alert="NodeAttestationRequestsPending", series={PENDING: "1x40"}, at="31m", firing=OWNED
    ),
    "not served for 15 minutes": Case(
        alert="NodeAttestationClusterNotServed",
        series={sample("cluster_served", namespace="team-a", **UNSERVED): "0x20"},
        at="16m",
        firing=UNSERVED,
    ),
    "no Leases for 10 minutes": Case(
        alert="NodeAttestationClustersNotShared",
        series={REPLICAS: "0x20"},
        at="11m",
        firing={"pod": "one"},
    ),
    "clock a minute behind": Case(
        alert="NodeAttestationClockSkew", series={SKEW: "-61x5"}, at="2m", firing={"pod": "one"}
    ),
    "lines that were lost": Case(
        alert="NodeAttestationAuditLinesLost",
        series={lost_lines("audit"): "0x10 7x10", lost_lines("other"): "0x20"},
        at="15m",
        firing={"kind": "audit", "pod": "one"},
    ),
    "slow for 15 minutes": Case(
        alert="NodeAttestationClusterSlow", series={SLOW: "1x20"}, at="16m", firing=OWNED
    ),
    "kubeconfig with 29 days left": Case(
        alert="NodeAttestationKubeconfigExpires",
        series={KUBECONFIG: f"{29 * DAY}x70"},
        at="61m",
        firing=OWNED,
    ),
    "first refused objects": Case(
        alert="NodeAttestationCacheRefusesObjects",
        series={REFUSED: "_x10 2x5"},
        at="12m",
        firing={"namespace": "team-a"},
    ),
    "invalid for 5 minutes": Case(
        alert="NodeAttestationTrustAnchorsInvalid",
        series={INVALID: "1x10"},
        at="6m",
        firing={"policy": "vendors"},
    ),
    "29 days left": Case(
        alert="NodeAttestationTrustAnchorExpires",
        series={EXPIRY: f"{29 * DAY}x5"},
        at="0m",
        firing=ANCHOR,
    ),
    "1 day left": Case(
        alert="NodeAttestationRevocationListExpires",
        series={NEXT_UPDATE: f"{DAY}x5"},
        at="0m",
        firing=LIST,
    ),
    "a list without authority": Case(
        alert="NodeAttestationRevocationListUnmatched",
        series={UNMATCHED: "1x10"},
        at="6m",
        firing={"policy": "vendors"},
    ),
}
SILENT: Final = {
    "one of two replicas is ready": Case(
        alert="NodeAttestationSignerAbsent",
        series={READY: "0x10", sample("ready", pod="two"): "1x10"},
        at="6m",
    ),
    "a refusal that ended": Case(
        alert="NodeAttestationRenewalRefused",
        series={sample("refused_nodes", reason="PcrPolicyMismatch", **OWNED): "1x4 stale"},
        at="6m",
    ),
    "a node that was overdue": Case(
        alert="NodeAttestationRenewalOverdue",
        series={sample("overdue_nodes", **OWNED): "1x9 0x10"},
        at="16m",
    ),
    "short certificates that are renewed": Case(
        alert="NodeAttestationCertificateEnds",
        series={
            sample("certificate_not_after_seconds", renewal="", **OWNED): "3600x10",
            sample("certificate_not_after_seconds", renewal="Overdue", **OWNED): f"{2 * DAY}x10",
        },
        at="6m",
    ),
    "policy corrected": Case(
        alert="NodeAttestationPolicyInvalid",
        series={sample("policy_valid", **POLICY): "0x4 1x6"},
        at="6m",
    ),
    "a reason that is no alarm": Case(
        alert="NodeAttestationSignerAlarm",
        series={verdicts("waiting", "MachineNotFound"): "_x10 1x5"},
        at="12m",
    ),
    "a verdict that is 20 minutes old": Case(
        alert="NodeAttestationSignerAlarm", series={ACTION: "_x10 1x30"}, at="31m"
    ),
    "a denial, not a warning": Case(
        alert="NodeAttestationRuleOnlyWarns",
        series={verdicts("denied", "PcrPolicyMismatch"): "_x10 1x5"},
        at="12m",
    ),
    "three denials": Case(
        alert="NodeAttestationRequestsDenied",
        series={verdicts("denied", "EndorsementKeyMismatch"): "_x10 1 2 3x20"},
        at="30m",
    ),
    "decided in between": Case(
        alert="NodeAttestationRequestsPending", series={PENDING: "1x20 0 1x20"}, at="31m"
    ),
    "served since 10 minutes": Case(
        alert="NodeAttestationClusterNotServed",
        series={
            sample("cluster_served", namespace="team-a", **UNSERVED): "0x9 stale",
            sample("cluster_served", namespace="team-a", cluster=CLUSTER, reason=""): "_x10 1x10",
        },
        at="16m",
    ),
    "served by the other replica": Case(
        alert="NodeAttestationClusterNotServed",
        series={
            sample("cluster_served", pod="one", **UNSERVED): "0x20",
            sample("cluster_served", pod="two", **UNSERVED | {"reason": ""}): "1x20",
        },
        at="16m",
    ),
    "Leases after 5 minutes": Case(
        alert="NodeAttestationClustersNotShared", series={REPLICAS: "0x5 1x20"}, at="11m"
    ),
    "clock corrected": Case(alert="NodeAttestationClockSkew", series={SKEW: "61 1x5"}, at="2m"),
    "lines of another kind that were lost": Case(
        alert="NodeAttestationAuditLinesLost",
        series={lost_lines("audit"): "0x20", lost_lines("other"): "0x10 7x10"},
        at="15m",
    ),
    "fast again": Case(alert="NodeAttestationClusterSlow", series={SLOW: "1x9 stale"}, at="16m"),
    "kubeconfig with 31 days left": Case(
        alert="NodeAttestationKubeconfigExpires", series={KUBECONFIG: f"{31 * DAY}x70"}, at="61m"
    ),
    "kubeconfig that was renewed": Case(
        alert="NodeAttestationKubeconfigExpires",
        series={KUBECONFIG: f"{29 * DAY}x50 {365 * DAY}x20"},
        at="61m",
    ),
    "objects refused 20 minutes ago": Case(
        alert="NodeAttestationCacheRefusesObjects", series={REFUSED: "_x10 2x30"}, at="31m"
    ),
    "valid anchors": Case(
        alert="NodeAttestationTrustAnchorsInvalid", series={INVALID: "0x10"}, at="6m"
    ),
    "31 days left": Case(
        alert="NodeAttestationTrustAnchorExpires", series={EXPIRY: f"{31 * DAY}x5"}, at="0m"
    ),
    "3 days left": Case(
        alert="NodeAttestationRevocationListExpires", series={NEXT_UPDATE: f"{3 * DAY}x5"}, at="0m"
    ),
    "a list without nextUpdate": Case(
        alert="NodeAttestationRevocationListExpires", series={NEXT_UPDATE: "0x5"}, at="0m"
    ),
    "all lists match": Case(
        alert="NodeAttestationRevocationListUnmatched", series={UNMATCHED: "0x10"}, at="6m"
    ),
}


def alerts(rules: Path) -> dict[str, Mapping[str, Any]]:
    """Return the alerts of a file by their names."""
    [group] = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"] if "alert" in rule}


def unit_test(name: str, case: Case, rules: Path) -> Mapping[str, Any]:
    """Return a case in promtool's format. It compares all labels and texts of an alert."""
    expected = []
    if case.firing is not None:
        rule = alerts(rules)[case.alert]
        texts = dict(rule["annotations"])
        for key, value in case.firing.items():
            texts = {
                k: text.replace(f"{{{{ $labels.{key} }}}}", value) for k, text in texts.items()
            }
        expected = [{"exp_labels": {**case.firing, **rule["labels"]}, "exp_annotations": texts}]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": s, "values": values} for s, values in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
        ],
    }


def evaluate(cases: Mapping[str, Case], rules: Path) -> None:
    """Let promtool evaluate the rules.

    Raises `PromtoolFailed`: an alert fires that must not, or does not fire as it must.
    """
    tests = [unit_test(name, case, rules) for name, case in cases.items()]
    document = {"rule_files": [rules.name], "evaluation_interval": "1m", "tests": tests}
    file = rules.with_name("tests.yaml")
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    promtool("test", "rules", file)


def test_rules_pass_the_linter(rules: Path) -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", rules)


def test_every_alert_fires_and_stays_silent(rules: Path) -> None:
    named = {case.alert for case in FIRING.values()}, {case.alert for case in SILENT.values()}
    assert named == (set(alerts(rules)),) * 2
    evaluate({**FIRING, **SILENT}, rules)


def test_promtool_reports_an_alert_that_must_not_fire(rules: Path) -> None:
    case = FIRING["1 day left"]
    silent = Case(alert=case.alert, series=case.series, at=case.at)
    with pytest.raises(PromtoolFailed, match="alertname: NodeAttestationRevocationListExpires"):
        evaluate({"1 day left": silent}, rules)
