"""A real Prometheus evaluates the dashboard and the alerts with the metrics of a real signer."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from common.names import ENDORSEMENT_KEY_ANNOTATION
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer, serving_all
from tests.harness.tpm import TrustDomain
from tests.integration.scripted_node import Script
from tests.packaging.signer.helm import CHART
from tests.packaging.signer.prometheus import Prometheus
from tests.packaging.signer.promtool import PromtoolFailed, promtool

EMPTY: Final = {
    "Busy workers",
    "Slow API servers",
    "Clusters that are not served",
    "Nodes that will lose their certificates",
}
"""Panels without a series while the signer is idle and all API servers answer."""


def dashboard() -> Mapping[str, Any]:
    """Return the dashboard of the chart."""
    text = (CHART / "files/dashboard.json").read_text(encoding="utf-8")
    # What Grafana puts in place of the variables, with all clusters selected.
    text = text.replace("$__rate_interval", "1m").replace("$cluster", ".*")
    answer: Mapping[str, Any] = json.loads(text)
    return answer


def expressions() -> list[tuple[str, str]]:
    """Return title and expression of each target of each panel."""
    return [
        (panel["title"], target["expr"])
        for panel in dashboard()["panels"]
        for target in panel["targets"]
    ]


@pytest.fixture(scope="module")
def signer(
    fleet: Fleet, vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Signer]:
    """Run a signer with an authority and a revocation list, which gives each kind of verdict."""
    directory = tmp_path_factory.mktemp("signer")
    authority, revocations = directory / "vendor.pem", directory / "vendor.crl"
    authority.write_bytes(vendor.root + vendor.intermediate)
    revocations.write_bytes(vendor.revoke())
    rule = {
        "trust": "RegisteredAndCertified",
        "certificateAuthorities": [str(authority)],
        "certificateRevocationLists": [str(revocations)],
    }
    with (
        ExitStack() as stack,
        serving_all(fleet, directory / "run", {"endorsementKey": rule}) as running,
    ):
        running.wait_until_ready()
        machines = Machines(fleet, vendor, directory, stack)
        node = machines.registered()
        assert Script(node).attest() == {"Approved": "Attested"}
        assert Script(machines.power_on(name=node.name)).refusal() == "EndorsementKeyMismatch"
        Script(machines.power_on()).waiting_for("MachineNotFound")
        yield running


@pytest.fixture(scope="module")
def prometheus(
    signer: Signer, rules: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the signer."""
    directory = tmp_path_factory.mktemp("prometheus") / "run"
    with Prometheus(directory, signer.address, rules) as running:
        yield running


@pytest.mark.parametrize(
    ("title", "expression"),
    [
        pytest.param(*each, id=f"{number} {each[0]}")
        for number, each in enumerate(expressions(), start=1)
    ],
)
def test_panel_shows_the_metrics_of_the_signer(
    prometheus: Prometheus, title: str, expression: str
) -> None:
    used = set(re.findall(r"\bnode_attestation_\w+", expression))
    assert used
    assert used <= prometheus.metric_names()
    if title in EMPTY:
        assert isinstance(prometheus.query(expression), list)
    else:
        wait_until(lambda: bool(prometheus.query(expression)), what=f"{title} has a series")


TABLES: Final = [panel for panel in dashboard()["panels"] if panel["type"] == "table"]


@pytest.mark.parametrize("panel", TABLES, ids=lambda panel: panel["title"])
def test_table_hides_the_time_of_the_query_and_names_every_column(
    prometheus: Prometheus, panel: Mapping[str, Any]
) -> None:
    [target], [organize] = panel["targets"], panel["transformations"]
    series = prometheus.query(target["expr"])
    assert series
    columns = {"Time", "Value", *series[0]["metric"]}
    assert organize["options"]["excludeByName"] == {"Time": True}
    assert columns - {"Time"} == set(organize["options"]["renameByName"])


def test_variable_of_the_dashboard_lists_the_clusters(prometheus: Prometheus, fleet: Fleet) -> None:
    [query] = [
        variable["query"]["query"]
        for variable in dashboard()["templating"]["list"]
        if variable["name"] == "cluster"
    ]
    match = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
    assert match is not None
    [cluster] = prometheus.label_values(match[2], match[1])
    assert cluster == f"{fleet.first.namespace}/{fleet.first.name}"


def test_rules_are_evaluated_without_an_error(prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in prometheus.rules())

    wait_until(evaluated, what="all rules are evaluated")
    errors = {rule["name"]: rule.get("lastError") for rule in prometheus.rules()}
    assert not any(errors.values()), errors


def test_alert_fires_at_the_first_alarm(
    prometheus: Prometheus, fleet: Fleet, machines: Machines
) -> None:
    """The counter appears with its first verdict, so its increase is 0."""
    node = machines.power_on()
    record = {ENDORSEMENT_KEY_ANNOTATION: "not a key"}
    machine = Machine(node.name, provider_id=node.provider_id, annotations=record)
    fleet.add_machine(node.tenant, machine)
    Script(node).waiting_for("EndorsementKeyRegistrationInvalid")
    firing = 'ALERTS{alertstate="firing",alertname="NodeAttestationSignerAlarm"}'
    wait_until(lambda: bool(prometheus.query(firing)), what="the alert fires")
    [alert] = prometheus.query(firing)
    assert alert["metric"]["reason"] == "EndorsementKeyRegistrationInvalid"


def test_metrics_pass_the_linter(signer: Signer) -> None:
    text = signer.ask("/metrics").text
    promtool("check", "metrics", stdin=text)
    with pytest.raises(PromtoolFailed, match="no help text"):
        promtool("check", "metrics", stdin="# TYPE an_example gauge\nan_example 1\n")
