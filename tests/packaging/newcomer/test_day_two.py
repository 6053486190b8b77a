"""Day two: an operator finds what breaks, and repairs it with the commands that the tools print.

Each break shows in `kubectl attestation problems`, as an alert, and in a condition. A signer that
is stopped can write no condition: `clusters` shows it.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.harness import kubeconfig
from tests.harness.client import Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster, opt_in
from tests.harness.workload import SIGNER
from tests.integration import csrs
from tests.integration.measured_nodes import PCRS, boot, renew, values
from tests.integration.operator_calls import Operator, cluster_of, key_of, register
from tests.integration.policies import StoredPolicy, stored_policy
from tests.packaging.signer.promtool import require_firing

MACHINES: Final = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{}"
RULES: Final = {
    "pcrs": {
        "mode": "Enforce",
        "selection": {"sha256": [*PCRS]},
        "allowed": {"sha256": {index: [value] for index, value in values("1.4").items()}},
    },
    "eventLog": {"secureBoot": True},
}
PAST: Final = {"spec": {"renewalDeadline": "2026-01-01T00:00:00Z"}}


@dataclass(frozen=True, slots=True)
class DayTwo:
    """A fleet that has run for a while, and what its operator sees and does."""

    fleet: Fleet
    machines: Machines
    signer: Signer
    policy: StoredPolicy
    operator: Operator
    alerts: Path

    @property
    def tenant(self) -> WorkloadTenant:
        """The Cluster of the story."""
        return self.fleet.first

    def problems(self) -> Sequence[Object]:
        """Return what `problems` lists.

        The authorities of the tests are valid for two days, so each kubeconfig expires soon.
        """
        call = self.operator.call("problems", "--cluster", cluster_of(self.tenant), "-o", "json")
        assert call.status == (1 if call.items else 0), call
        return [row for row in call.items if row["problem"] != "Expiring"]

    def problem(self, name: str, problem: str, reason: str) -> Object:
        """Wait until `problems` has a row about an object, and return it."""

        def rows() -> list[Object]:
            wanted = (name, problem, reason)
            rows = self.problems()
            return [r for r in rows if (r["object"], r["problem"], r["reason"]) == wanted]

        wait_until(lambda: bool(rows()), what=f"{name} is {problem}", seconds=120, poll=1)
        [row] = rows()
        return row

    def follow(self, next_step: str, *flags: str) -> str:
        """Run a command that a tool printed, and return its output."""
        program, subcommand, *words = shlex.split(next_step)
        assert (program, subcommand) == ("kubectl", "attestation")
        call = self.operator.call(*words, *flags)
        assert call.status in {0, 1}, call
        return call.output

    def alert(self, name: str, **labels: str) -> None:
        """Require that an alert fires if the metrics stay as they are."""
        metrics = self.signer.ask("/metrics").text
        require_firing(self.alerts, metrics, datetime.now(UTC), name, **labels)

    def wait_for_condition(self, node: Node, status: str, reason: str) -> None:
        """Wait until KubeletAttested of a node's Machine is as given."""
        path = MACHINES.format(node.tenant.namespace, node.name)

        def found() -> set[tuple[str, str, str]]:
            conditions = self.fleet.management.admin.get(path)["status"]["conditions"]
            return {(c["type"], c["status"], c["reason"]) for c in conditions}

        wanted = ("KubeletAttested", status, reason)
        wait_until(lambda: wanted in found(), what=f"{node.name} has {wanted}", seconds=120)

    def wait_until_repaired(self, node: Node) -> None:
        """Wait until nothing is to be done about a node."""
        self.wait_for_condition(node, "True", "Attested")
        assert node.name not in {row["object"] for row in self.problems()}


@pytest.fixture
def day_two(fleet: Fleet, machines: Machines, rules: Path, tmp_path: Path) -> Iterator[DayTwo]:
    """Run a signer with policy objects and a kubeconfig of its own, for one Cluster."""
    tenant = fleet.first
    tenant.workload.start_controllers()
    admin = {"value": tenant.workload.admin_config.read_text(encoding="utf-8")}
    fleet.management.replace_secret(tenant.namespace, tenant.name, "kubeconfig", admin)
    opt_in(fleet, tenant)
    operator = Operator(fleet, fleet.management.admin_config)
    assert operator.call("kubeconfig", cluster_of(tenant)).status == 0
    with (
        stored_policy(fleet, "production", of_cluster(tenant, **RULES)) as policy,
        Signer(fleet, tmp_path / "signer") as signer,
    ):
        signer.wait_until_ready()
        yield DayTwo(fleet, machines, signer, policy, operator, rules)


def test_operator_finds_and_repairs_what_breaks(day_two: DayTwo) -> None:
    nodes = [join(day_two) for _ in range(5)]
    replace_an_expired_kubeconfig(day_two, nodes[0])
    start_a_stopped_signer(day_two, nodes[1])
    accept_the_update_of_three_nodes_and_of_one(day_two, nodes[:3], nodes[3])
    replace_a_dead_tpm(day_two, nodes[4])
    assert day_two.problems() == []


def join(day: DayTwo) -> Node:
    """Let a node join whose key an operator registers."""
    node = day.machines.known(day.tenant)
    boot(node, "1.4")
    assert register(day.operator, node, f"sha256:{key_of(node)}").status == 0
    assert node.call().status == 0
    return node


def accept_the_update_of_three_nodes_and_of_one(
    day: DayTwo, updated: Sequence[Node], other: Node
) -> None:
    """Accept another firmware, and the kernel of a node that was not updated with the rest."""
    for node in updated:
        boot(node, "1.5")
    boot(other, "1.4", kernel=b"kernel 2")
    reason = "PcrPolicyMismatch"
    for node in (*updated, other):
        assert reason in renew(node)
        row = day.problem(node.name, "Refused", reason)
        assert row["nextStep"] == "kubectl attestation pcrs review"
        day.wait_for_condition(node, "False", reason)
    day.alert("NodeAttestationRenewalRefused", cluster=cluster_of(day.tenant), reason=reason)
    review = day.follow("kubectl attestation pcrs review", "-o", "json")
    items = [item for item in json.loads(review)["items"] if item["state"] == "NotAllowed"]
    groups = {group["change"]: group for group in items}
    assert {change: group["nodes"] for change, group in groups.items()} == {
        'PCR 0, firmware "1.4" to "1.5"': 3,
        "PCR 4, another boot loader": 1,
    }
    for group in groups.values():
        assert ": changed\n" in day.follow(group["nextStep"], "--yes")
    day.policy.wait_for("Ready", "True", "InForce")
    for node in (*updated, other):
        assert renew(node) == ""
        day.wait_until_repaired(node)


def replace_a_dead_tpm(day: DayTwo, node: Node) -> None:
    """Repair a node that asks for no certificate any more."""
    node.tpm.power_off()
    assert "TpmUnavailable" in renew(node)
    claim = f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{node.name}.{node.tenant.name}"
    day.fleet.management.admin.patch(claim, PAST)
    row = day.problem(node.name, "Overdue", "RenewalOverdue")
    day.wait_for_condition(node, "False", "RenewalOverdue")
    day.alert("NodeAttestationRenewalOverdue", cluster=cluster_of(day.tenant))
    where, _, command = row["nextStep"].partition(": kubelet-authenticator-tpm ")
    assert where == "on the node"
    report = node.call(*shlex.split(command), "--kubeconfig", str(node.kubeconfig())).output
    assert "wrong  TPM: TpmUnavailable" in report
    assert "kubectl attestation replace" in report
    repaired = day.machines.power_on(node.tenant, node.name)
    boot(repaired, "1.4")
    new_key = f"sha256:{key_of(repaired)}"
    name = f"{cluster_of(node.tenant)}/{node.name}"
    assert "is replaced" in day.follow("kubectl attestation replace", name, new_key, "--yes")
    assert repaired.call().status == 0
    day.wait_until_repaired(repaired)


def replace_an_expired_kubeconfig(day: DayTwo, node: Node) -> None:
    """Renew the kubeconfig with which the signer could not connect any more."""
    workload = day.tenant.workload
    pair = workload.client_authority.client(SIGNER, SIGNER, lifetime=-timedelta(minutes=1))
    expired = kubeconfig.with_certificate(
        workload.url, workload.authority.pair.certificate, pair, user=SIGNER
    )
    day.fleet.management.replace_secret(
        day.tenant.namespace, day.tenant.name, "attestation-kubeconfig", {"value": expired}
    )
    # The certificate of the present connection has not expired.
    day.signer.stop()
    day.signer.start()
    row = day.problem("Cluster", "Unserved", "KubeconfigRefused")
    day.alert("NodeAttestationClusterNotServed", cluster=cluster_of(day.tenant))
    day.policy.wait_for("ClustersServed", "False", "ClustersNotServed")
    findings = json.loads(day.follow(row["nextStep"], "-o", "json"))["items"]
    [finding] = [each for each in findings if each["check"] == "connection"]
    assert "expired on" in finding["message"]
    assert "is written" in day.follow(finding["nextStep"])
    day.policy.wait_for_state(day.tenant, "Served")
    assert renew(node) == ""


def start_a_stopped_signer(day: DayTwo, node: Node) -> None:
    """Start the only replica again."""
    day.signer.stop()
    row = day.problem("signer", "Unserved", "NoReplica")
    day.alert("NodeAttestationSignerAbsent")
    [cluster] = day.operator.list("clusters", "--cluster", cluster_of(day.tenant))
    assert cluster["state"] == "NoReplica"
    assert row["nextStep"].startswith("kubectl get pods -n node-attestation-system")
    day.signer.start()
    day.signer.wait_until_ready()
    wait_until(lambda: day.problems() == [], what="a replica runs", seconds=120, poll=1)
    assert renew(node) == ""
