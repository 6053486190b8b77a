"""Metrics and probes of a running signer."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration.scripted_node import Script

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
