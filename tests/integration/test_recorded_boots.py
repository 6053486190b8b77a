"""From the first boots of good nodes to a policy that allows them, and to another boot (Q4)."""

import re
from pathlib import Path

import pytest

from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import POLICIES
from tests.harness.node import Node
from tests.harness.signer import Signer, of_cluster
from tests.integration import audit_log, csrs
from tests.integration.measured_nodes import renew
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.policies import stored_policy


@pytest.fixture
def operator(fleet: Fleet) -> Operator:
    """Return an administrator of the management cluster."""
    return Operator(fleet, fleet.management.admin_config)


def name_of(node: Node) -> str:
    return f"{cluster_of(node.tenant)}/{node.name}"


def joined(machines: Machines, count: int) -> list[Node]:
    nodes = [machines.registered() for _ in range(count)]
    for node in nodes:
        assert node.call().status == 0
    return nodes


def test_boots_of_good_nodes_are_accepted_and_enforced(
    machines: Machines, operator: Operator, signer: Signer
) -> None:
    fleet = operator.fleet
    with stored_policy(fleet, "recorded", of_cluster(fleet.first)) as policy:
        policy.wait_for("Ready", "True", "InForce")
        good, also_good, other = joined(machines, 3)
        names = (name_of(good), name_of(also_good))
        asked = operator.call("pcrs", "accept", *names)
        assert (asked.status, "pcrs.mode: Record to Warn" in asked.complaint) == (1, True), asked
        groups = re.findall(r"\b[0-9a-f]{64}\b", asked.complaint.rpartition("next step: ")[2])
        shown = {
            item["group"]: item
            for item in operator.call("pcrs", "review", "-o", "json").items
            if item["policy"] == "recorded"
        }
        assert {*groups} < {*shown}
        assert {shown[group]["state"] for group in groups} == {"Recorded"}
        accepted = operator.call("pcrs", "accept", *groups, "--yes")
        assert accepted.status == 0, accepted
        stored = fleet.management.admin.get(f"{POLICIES}/recorded")["spec"]
        policy.replace({**stored, "pcrs": {**stored["pcrs"], "mode": "Enforce"}})
        policy.wait_for("Ready", "True", "InForce")
        assert renew(good) == ""
        assert renew(also_good) == ""
        assert "PcrPolicyMismatch" in renew(other)
        _require_that_another_boot_is_refused(good, signer)


def _require_that_another_boot_is_refused(good: Node, signer: Signer) -> None:
    old_value = good.tpm.pcrs["sha256"][4].hex()
    good.tpm.extend(4, b"another boot loader")
    error_text = renew(good)
    assert "PcrPolicyMismatch" in error_text
    # Only the operator may see the expected value.
    assert old_value not in error_text
    assert old_value not in str(good.tenant.workload.admin.list(csrs.CSRS))
    *_, line = audit_log.logged(signer, good, "denied")
    assert (line["reason"], line["check"]) == ("PcrPolicyMismatch", "Q4")
    now = good.tpm.pcrs["sha256"][4].hex()
    assert line["detail"].startswith(f"sha256:4 is {now}, allowed ")
    assert old_value in line["detail"]
    assert "sha256:7" not in line["detail"]


@pytest.mark.usefixtures("signer")
def test_new_policy_is_printed_for_git_and_grows_by_another_node(
    machines: Machines, operator: Operator, tmp_path: Path
) -> None:
    """The API server takes what is printed: first a new policy, then the same one with more."""
    admin, path = operator.fleet.management.admin, f"{POLICIES}/from-git"

    def print_and(write: str, node: Node) -> Object:
        call = operator.call(
            *("pcrs", "accept", name_of(node), "--policy", "from-git", "--dry-run=client")
        )
        assert call.status == 0, call
        file = tmp_path / "policy.yaml"
        file.write_text(call.output, encoding="utf-8")
        operator.fleet.management.kubectl(write, "-f", str(file))
        spec: Object = admin.get(path)["spec"]
        return spec

    one, two = joined(machines, 2)
    try:
        first = print_and("create", one)
        namespace, name = one.tenant.namespace, one.tenant.name
        assert first["clusterRef"] == {"namespace": namespace, "name": name}
        second = print_and("replace", two)
    finally:
        admin.delete(path)
    assert second["pcrs"]["mode"] == "Warn"
    for count, spec in enumerate((first, second), 1):
        lists = spec["pcrs"]["allowed"]["sha256"]
        assert {index: len(values) for index, values in lists.items()} == {
            str(index): count for index in range(8)
        }
