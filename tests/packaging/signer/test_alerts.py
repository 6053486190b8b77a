"""Each alert of the chart fires when it must, and only then. Promtool evaluates the rules."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.packaging.signer.promtool import PromtoolFailed, promtool, require_firing

CLUSTER: Final = "team-a/workload"
DAY: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Case:
    """An alert and the metrics that it sees, with a value for each minute."""

    name: str
    """Of the alert, without the prefix of all of them."""
    series: Mapping[str, str]
    at: str
    """Time of the evaluation. The first value of a series is that of 0m."""
    firing: Mapping[str, str] | None = None
    """Labels of the alert that must fire, `None` if it must not fire."""

    @property
    def alert(self) -> str:
        """Return the whole name."""
        return f"NodeAttestation{self.name}"


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
ACTION_NEEDED: Final = {"cluster": CLUSTER, "reason": "OperatorActionRequired"}
ACTION: Final = verdicts("waiting", "OperatorActionRequired")
UNREADABLE: Final = sample("kind_failing_seconds", objects="Machines")
ODD: Final = sample("unreadable_objects", namespace="team-a", cluster="", objects="Machines")
ODD_RECORD: Final = sample(
    "unreadable_objects", namespace="", cluster="", objects="EndorsementKeys"
)
ODD_REQUEST: Final = sample(
    "unreadable_objects",
    namespace="team-a",
    cluster="team-a/c",
    objects="CertificateSigningRequests",
)
REFUSED: Final = sample("cache_refused_objects_total", namespace="team-a")
PENDING: Final = sample("pending_requests", **OWNED)
KUBECONFIG: Final = sample("kubeconfig_not_after_seconds", **OWNED)
UNANSWERED: Final = sample("circuit_breaker_open", **OWNED)
SLOW: Final = sample("slow_call_seconds", **OWNED)
INVALID: Final = sample("trust_anchors_invalid", policy="vendors")
EXPIRY: Final = sample("trust_anchor_not_after_seconds", **ANCHOR)
REPLICAS: Final = sample("replicas", pod="one")
SKEW: Final = sample("clock_skew_seconds", pod="one")
NEXT_UPDATE: Final = sample("revocation_list_next_update_seconds", **LIST)
UNMATCHED: Final = sample("revocation_lists_unmatched", policy="vendors")

READY: Final = sample("ready", pod="one")
POLICY: Final = {"policy": "production"}

FIRING: Final = {
    "no metrics for 5 minutes": Case("SignerAbsent", {}, "6m", {}),
    "no replica is ready": Case(
        "SignerAbsent", {READY: "0x10", sample("ready", pod="two"): "0x10"}, "6m", {}
    ),
    "a refused node": Case(
        "RenewalRefused",
        {sample("refused_nodes", pod="one", reason="PcrPolicyMismatch", **OWNED): "2x10"},
        "6m",
        {**OWNED, "reason": "PcrPolicyMismatch"},
    ),
    "an overdue node": Case(
        "RenewalOverdue", {sample("overdue_nodes", pod="one", **OWNED): "1x20"}, "16m", OWNED
    ),
    "a refused node with 23 hours left": Case(
        "CertificateEnds",
        {
            sample("certificate_not_after_seconds", renewal="", **OWNED): f"{5 * DAY}x10",
            sample("certificate_not_after_seconds", renewal="Refused", **OWNED): "82800x10",
        },
        "6m",
        OWNED,
    ),
    "policy invalid for 5 minutes": Case(
        "PolicyInvalid", {sample("policy_valid", pod="one", **POLICY): "0x10"}, "6m", POLICY
    ),
    "first verdict of its kind": Case("SignerAlarm", {ACTION: "_x10 1x5"}, "12m", ACTION_NEEDED),
    "one more verdict": Case("SignerAlarm", {ACTION: "1x30 2x5"}, "33m", ACTION_NEEDED),
    "first verdict after a restart": Case(
        "SignerAlarm",
        {
            verdicts("waiting", "OperatorActionRequired", pod="old"): "1x30 stale",
            verdicts("waiting", "OperatorActionRequired", pod="new"): "_x31 1x5",
        },
        "33m",
        ACTION_NEEDED,
    ),
    "first warning": Case(
        "RuleOnlyWarns",
        {verdicts("alarm", "PcrPolicyMismatch"): "_x10 1x5"},
        "12m",
        {"cluster": CLUSTER, "outcome": "alarm", "reason": "PcrPolicyMismatch"},
    ),
    "four denials": Case(
        "RequestsDenied",
        {verdicts("denied", "EndorsementKeyMismatch"): "_x10 1 2 3 4x20"},
        "30m",
        {"cluster": CLUSTER, "outcome": "denied", "reason": "EndorsementKeyMismatch"},
    ),
    "pending for 30 minutes": Case("RequestsPending", {PENDING: "1x40"}, "31m", OWNED),
    "not served for 15 minutes": Case(
        "ClusterNotServed",
        {sample("cluster_served", namespace="team-a", **UNSERVED): "0x20"},
        "16m",
        UNSERVED,
    ),
    "no Leases for 10 minutes": Case(
        "ClustersNotShared", {REPLICAS: "0x20"}, "11m", {"pod": "one"}
    ),
    "clock a minute behind": Case("ClockSkew", {SKEW: "-61x5"}, "2m", {"pod": "one"}),
    "lines that were lost": Case(
        "AuditLinesLost",
        {lost_lines("audit"): "0x10 7x10", lost_lines("other"): "0x20"},
        "15m",
        {"kind": "audit", "pod": "one"},
    ),
    "no answers for 15 minutes": Case("ClusterSlow", {UNANSWERED: "1x20"}, "16m", OWNED),
    "slow for 15 minutes": Case("ClusterSlow", {SLOW: "3.3x20"}, "16m", OWNED),
    "a kind that fails for two minutes": Case(
        "KindUnreadable", {UNREADABLE: "0 60x1 120 180"}, "5m", {"objects": "Machines"}
    ),
    "an object that cannot be read for 5 minutes": Case(
        "ObjectUnreadable", {ODD: "1x10"}, "6m", {"namespace": "team-a", "objects": "Machines"}
    ),
    "a record that cannot be read for a minute": Case(
        "RecordUnreadable", {ODD_RECORD: "1x3"}, "2m", {"objects": "EndorsementKeys"}
    ),
    "kubeconfig with 29 days left": Case(
        "KubeconfigExpires", {KUBECONFIG: f"{29 * DAY}x70"}, "61m", OWNED
    ),
    "first refused objects": Case(
        "CacheRefusesObjects", {REFUSED: "_x10 2x5"}, "12m", {"namespace": "team-a"}
    ),
    "invalid for 5 minutes": Case(
        "TrustAnchorsInvalid", {INVALID: "1x10"}, "6m", {"policy": "vendors"}
    ),
    "29 days left": Case("TrustAnchorExpires", {EXPIRY: f"{29 * DAY}x5"}, "0m", ANCHOR),
    "1 day left": Case("RevocationListExpires", {NEXT_UPDATE: f"{DAY}x5"}, "0m", LIST),
    "a list without authority": Case(
        "RevocationListUnmatched", {UNMATCHED: "1x10"}, "6m", {"policy": "vendors"}
    ),
}
SILENT: Final = {
    "one of two replicas is ready": Case(
        "SignerAbsent", {READY: "0x10", sample("ready", pod="two"): "1x10"}, "6m"
    ),
    "a refusal that ended": Case(
        "RenewalRefused",
        {sample("refused_nodes", reason="PcrPolicyMismatch", **OWNED): "1x4 stale"},
        "6m",
    ),
    "a node that was overdue": Case(
        "RenewalOverdue", {sample("overdue_nodes", **OWNED): "1x9 0x10"}, "16m"
    ),
    "short certificates that are renewed": Case(
        "CertificateEnds",
        {
            sample("certificate_not_after_seconds", renewal="", **OWNED): "3600x10",
            sample("certificate_not_after_seconds", renewal="Overdue", **OWNED): f"{2 * DAY}x10",
        },
        "6m",
    ),
    "policy corrected": Case("PolicyInvalid", {sample("policy_valid", **POLICY): "0x4 1x6"}, "6m"),
    "a reason that is no alarm": Case(
        "SignerAlarm", {verdicts("waiting", "MachineNotFound"): "_x10 1x5"}, "12m"
    ),
    "a verdict that is 20 minutes old": Case("SignerAlarm", {ACTION: "_x10 1x30"}, "31m"),
    "a denial, not a warning": Case(
        "RuleOnlyWarns", {verdicts("denied", "PcrPolicyMismatch"): "_x10 1x5"}, "12m"
    ),
    "three denials": Case(
        "RequestsDenied", {verdicts("denied", "EndorsementKeyMismatch"): "_x10 1 2 3x20"}, "30m"
    ),
    "decided in between": Case("RequestsPending", {PENDING: "1x20 0 1x20"}, "31m"),
    "served since 10 minutes": Case(
        "ClusterNotServed",
        {
            sample("cluster_served", namespace="team-a", **UNSERVED): "0x9 stale",
            sample("cluster_served", namespace="team-a", cluster=CLUSTER, reason=""): "_x10 1x10",
        },
        "16m",
    ),
    "served by the other replica": Case(
        "ClusterNotServed",
        {
            sample("cluster_served", pod="one", **UNSERVED): "0x20",
            sample("cluster_served", pod="two", **UNSERVED | {"reason": ""}): "1x20",
        },
        "16m",
    ),
    "Leases after 5 minutes": Case("ClustersNotShared", {REPLICAS: "0x5 1x20"}, "11m"),
    "clock corrected": Case("ClockSkew", {SKEW: "61 1x5"}, "2m"),
    "lines of another kind that were lost": Case(
        "AuditLinesLost", {lost_lines("audit"): "0x20", lost_lines("other"): "0x10 7x10"}, "15m"
    ),
    "fast again": Case("ClusterSlow", {SLOW: "3.3x9 stale"}, "16m"),
    "a kind that failed for a minute": Case("KindUnreadable", {UNREADABLE: "0 60 0x5"}, "5m"),
    "what others have cannot be read": Case("RecordUnreadable", {ODD: "1x10"}, "6m"),
    "nothing depends on a request that cannot be read": Case(
        "ObjectUnreadable", {ODD_REQUEST: "1x10", ODD_RECORD: "1x10"}, "6m"
    ),
    "an object that was corrected": Case("ObjectUnreadable", {ODD: "1x4 0x6"}, "8m"),
    "kubeconfig with 31 days left": Case(
        "KubeconfigExpires", {KUBECONFIG: f"{31 * DAY}x70"}, "61m"
    ),
    "kubeconfig that was renewed": Case(
        "KubeconfigExpires", {KUBECONFIG: f"{29 * DAY}x50 {365 * DAY}x20"}, "61m"
    ),
    "objects refused 20 minutes ago": Case("CacheRefusesObjects", {REFUSED: "_x10 2x30"}, "31m"),
    "valid anchors": Case("TrustAnchorsInvalid", {INVALID: "0x10"}, "6m"),
    "31 days left": Case("TrustAnchorExpires", {EXPIRY: f"{31 * DAY}x5"}, "0m"),
    "3 days left": Case("RevocationListExpires", {NEXT_UPDATE: f"{3 * DAY}x5"}, "0m"),
    "a list without nextUpdate": Case("RevocationListExpires", {NEXT_UPDATE: "0x5"}, "0m"),
    "all lists match": Case("RevocationListUnmatched", {UNMATCHED: "0x10"}, "6m"),
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
    silent = Case(case.name, case.series, case.at)
    with pytest.raises(PromtoolFailed, match="alertname: NodeAttestationRevocationListExpires"):
        evaluate({"1 day left": silent}, rules)


def test_recorded_metrics_let_the_alerts_fire_that_they_must(rules: Path) -> None:
    """Times are those of the recording, and the clock of promtool begins with 0."""
    now = datetime(2026, 11, 22, tzinfo=UTC)
    labels = '{namespace="team-a",cluster="team-a/c1",renewal="Refused"}'
    name = "node_attestation_certificate_not_after_seconds"

    def recorded(hours: int) -> str:
        end = (now + timedelta(hours=hours)).timestamp()
        return f"# TYPE {name} gauge\n{name}{labels} {end}\n"

    alert = "NodeAttestationCertificateEnds"
    require_firing(rules, recorded(25), now, alert, cluster="team-a/c1")
    for metrics, cluster in ((recorded(26), "team-a/c1"), (recorded(25), "team-a/c2"), ("", "")):
        with pytest.raises(PromtoolFailed):
            require_firing(rules, metrics, now, alert, cluster=cluster)
