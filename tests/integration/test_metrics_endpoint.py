"""Metrics and probes of a running signer."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration.scripted_node import Script

DEBUG = "/debug/clusters"
VERDICTS = "node_attestation_verdicts_total"


def verdicts(signer: Signer, node: Node) -> dict[tuple[str, str, str], float]:
    """Return the number of verdicts in a node's cluster, by kind, outcome and reason."""
    return {
        (sample.labels["kind"], sample.labels["outcome"], sample.labels["reason"]): sample.value
        for family in text_string_to_metric_families(signer.ask("/metrics").text)
        for sample in family.samples
        if sample.name == VERDICTS
        and sample.labels["cluster"] == f"{node.tenant.namespace}/{node.tenant.name}"
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_running_signer_is_healthy_and_ready(signer: Signer, path: str) -> None:
    signer.wait_until_ready()
    assert signer.ask(path).text == "ok\n"


def test_state_of_each_cluster_is_shown(signer: Signer, fleet: Fleet) -> None:
    def states() -> dict[str, str]:
        return {report["namespace"]: report["state"] for report in signer.ask(DEBUG).json()}

    signer.wait_until_ready()
    served = dict.fromkeys((tenant.namespace for tenant in fleet.tenants), "Served")
    wait_until(lambda: states().items() >= served.items(), what="both Clusters are served")


def test_verdicts_are_counted(machines: Machines, signer: Signer) -> None:
    node = machines.registered()
    earlier = verdicts(signer, node)
    assert Script(node).attest() == {"Approved": "Attested"}
    assert Script(machines.power_on(name=node.name)).refusal() == "EndorsementKeyMismatch"
    kinds = (
        ("offer", "challenged", ""),
        ("answer", "issued", ""),
        ("offer", "denied", "EndorsementKeyMismatch"),
    )

    def counted() -> bool:
        """Return whether each has increased by one. A verdict is counted after it is written."""
        after = verdicts(signer, node)
        # The signer may still reconcile CSRs of earlier tests.
        return all(after.get(kind, 0) > earlier.get(kind, 0) for kind in kinds)

    wait_until(counted, what="the verdicts are counted")
    assert node.name not in signer.ask("/metrics").text


def test_secure_metrics_are_served_to_those_that_rbac_allows(fleet: Fleet, tmp_path: Path) -> None:
    """The readers are ServiceAccounts of the management cluster, one of them with the right."""
    management = fleet.management
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    tokens = {}
    for name in ("prometheus", "somebody"):
        management.admin.create(accounts, {"metadata": {"name": name}})
        tokens[name] = management.kubectl("create", "token", "-n", NAMESPACE, name).strip()
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    management.admin.create(
        f"{rbac}/clusterroles", {"metadata": {"name": "metrics-reader"}, "rules": [rule]}
    )
    management.kubectl(
        *("create", "clusterrolebinding", "metrics-reader", "--clusterrole=metrics-reader"),
        f"--serviceaccount={NAMESPACE}:prometheus",
    )
    with Signer(fleet, tmp_path / "secure").use_secure_metrics() as signer:
        signer.wait_until_ready()
        assert signer.ask("/healthz").text == "ok\n"
        assert VERDICTS in signer.ask("/metrics", token=tokens["prometheus"]).text
        statuses = [
            signer.ask("/metrics", token=token).status_code
            for token in (tokens["somebody"], "not-a-token", "")
        ]
        assert statuses == [403, 401, 401]
