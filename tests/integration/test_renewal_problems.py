"""What an operator sees of refused and overdue renewals, unknown TPMs and a lost authority."""

import shlex

import pytest

from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Call, Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.integration import csrs
from tests.integration.machine_events import condition, events, wait_for_condition
from tests.integration.operator_calls import Operator, cluster_of, key_of
from tests.integration.scripted_node import Script

ANOTHER_BOOT = {
    "mode": "Enforce",
    "selection": {"sha256": [4]},
    "allowed": {"sha256": {"4": ["ab" * 32]}},
}
"""A policy that does not allow what a software TPM measures."""


@pytest.fixture
def operator(fleet: Fleet) -> Operator:
    """Return an administrator of the management cluster."""
    return Operator(fleet, fleet.management.admin_config)


def renew(node: Node) -> Call:
    return node.call("renew", "--kubeconfig", str(node.kubeconfig()))


def row_of(operator: Operator, node: Node) -> Object | None:
    """Return the problem of a node."""
    call = operator.call("problems", "--cluster", cluster_of(node.tenant), "-o", "json")
    rows: list[Object] = [row for row in call.items if row["object"] == node.name]
    assert call.status == (1 if call.items else 0), call
    return rows[0] if rows else None


def state_of(operator: Operator, node: Node) -> tuple[str, str | None]:
    """Return what `nodes` shows of a node."""
    items = operator.list("nodes", "--cluster", cluster_of(node.tenant))
    [item] = [item for item in items if item["node"] == node.name]
    return item["state"], item["reason"]


def counts_agree(operator: Operator, node: Node) -> bool:
    """Return whether `clusters` counts the nodes that `nodes` shows as attested."""
    of_cluster = ("--cluster", cluster_of(node.tenant))
    [cluster] = operator.list("clusters", *of_cluster)
    states = [item["state"] for item in operator.list("nodes", *of_cluster)]
    return bool(cluster["attestedNodes"] == states.count("Attested"))


def labels(node: Node) -> dict[str, str]:
    return {"namespace": node.tenant.namespace, "cluster": cluster_of(node.tenant)}


def wait_until_counted(signer: Signer, node: Node) -> None:
    """Wait until the metrics count the nodes of a Cluster: a new signer has not counted them yet.

    Other tests leave nodes whose renewal was refused or is overdue.
    """
    wait_until(
        lambda: signer.metric("node_attestation_overdue_nodes", **labels(node)) is not None,
        what="the nodes are counted",
    )


def test_refused_renewal_shows_until_the_policy_accepts_the_node(
    fleet: Fleet, signer: Signer, machines: Machines, operator: Operator
) -> None:
    """It was Attested everywhere, and the node died when its certificate expired."""
    node, reason = machines.registered(), "PcrPolicyMismatch"
    assert node.call().status == 0
    wait_for_condition(fleet, node, "True", "Attested")
    metric = "node_attestation_refused_nodes"
    wait_until_counted(signer, node)
    before = signer.metric(metric, **labels(node), reason=reason) or 0
    with signer.with_policies(of_cluster(fleet.first, pcrs=ANOTHER_BOOT)) as refusing:
        call = renew(node)
        assert reason in call.complaint
        wait_for_condition(fleet, node, "False", reason)
        shown = condition(fleet, node)
        assert shown["observedGeneration"] == shown["generation"]
        assert "valid until" in shown["message"]
        wait_until(lambda: ("Warning", reason) in events(fleet, node), what="the Event")
        alarms = [line for line in refusing.lines if line.get("alarm") and line.get("node")]
        assert {(line["node"], line["reason"]) for line in alarms} >= {(node.name, reason)}
        assert refusing.metric(metric, **labels(node), reason=reason) == before + 1
        assert state_of(operator, node) == ("Refused", reason)
        wait_until(lambda: counts_agree(operator, node), what="the counts agree")
        row = row_of(operator, node)
        assert row is not None
        assert (row["problem"], row["reason"]) == ("Refused", reason)
        refused = csrs.claim(node, fleet.management.admin)["lastRefusal"]
        assert refused["measured"]["pcrs"]["sha256"].keys() == {"4"}
        review = operator.call(*shlex.split(row["nextStep"])[2:])
        assert "NotAllowed" in review.output
        assert "kubectl attestation pcrs accept" in review.output
        stranger = Script(machines.power_on(name=node.name))
        assert stranger.refusal() == "EndorsementKeyMismatch"
        later = machines.known()
        Script(later).waiting_for("EndorsementKeyNotRegistered")
        wait_for_condition(fleet, later, "False", "EndorsementKeyNotRegistered")
        assert condition(fleet, node)["reason"] == reason
        assert csrs.claim(node, fleet.management.admin)["lastRefusal"] == refused
    signer.wait_until_ready()
    # The claim has the refusal after a restart of the signer.
    assert state_of(operator, node) == ("Refused", reason)
    wait_until(lambda: renew(node).status == 0, what="the node renews its certificate")
    wait_for_condition(fleet, node, "True", "Attested")
    assert state_of(operator, node) == ("Attested", None)
    assert row_of(operator, node) is None
    wait_until(
        lambda: (signer.metric(metric, **labels(node), reason=reason) or 0) == before,
        what="the metric ends",
    )


def test_overdue_renewal_shows_until_the_node_renews(
    fleet: Fleet, signer: Signer, machines: Machines, operator: Operator
) -> None:
    """A dead TPM, a firewall or a plugin that was removed looked like a healthy node."""
    node, reason = machines.registered(), "RenewalOverdue"
    assert node.call().status == 0
    wait_for_condition(fleet, node, "True", "Attested")
    admin, namespace = fleet.management.admin, node.tenant.namespace
    wait_until_counted(signer, node)
    before = signer.metric("node_attestation_overdue_nodes", **labels(node)) or 0
    path = f"{csrs.ATTESTED_NODES.format(namespace)}/{node.name}.{node.tenant.name}"
    admin.patch(path, {"spec": {"renewalDeadline": "2026-01-01T00:00:00Z"}})
    wait_for_condition(fleet, node, "False", reason)
    wait_until(lambda: ("Warning", reason) in events(fleet, node), what="the Event")
    assert signer.metric("node_attestation_overdue_nodes", **labels(node)) == before + 1
    assert state_of(operator, node) == ("Overdue", reason)
    row = row_of(operator, node)
    assert row is not None
    assert row["nextStep"] == "on the node: kubelet-authenticator-tpm doctor"
    assert renew(node).status == 0
    wait_for_condition(fleet, node, "True", "Attested")
    assert state_of(operator, node) == ("Attested", None)


@pytest.mark.usefixtures("signer")
def test_unknown_tpm_is_a_problem_with_the_command_that_approves_it(
    fleet: Fleet, machines: Machines, operator: Operator
) -> None:
    node = machines.known()
    Script(node).waiting_for("EndorsementKeyNotRegistered")
    wait_until(lambda: row_of(operator, node) is not None, what="the key is recorded")
    row = row_of(operator, node)
    assert row is not None
    assert row["problem"] == "Unknown"
    assert key_of(node) in row["message"]
    words = shlex.split(row["nextStep"])[2:]
    assert operator.call(*words, key_of(node), "--yes").status == 0
    wait_until(lambda: row_of(operator, node) is None, what="the TPM is known")
    assert fleet.management.admin.get(f"{csrs.ENDORSEMENT_KEYS}/{key_of(node)}")


def test_deleted_authority_is_reported_when_a_node_needs_it(
    fleet: Fleet, signer: Signer, machines: Machines
) -> None:
    """The Cluster was shown as served for up to ten minutes."""
    tenant, admin = fleet.second, fleet.management.admin
    secrets = f"/api/v1/namespaces/{tenant.namespace}/secrets"
    key = (tenant.namespace, tenant.name)
    wait_until(lambda: signer.states().get(key) == "Served", what="the Cluster is served")
    stored = admin.get(f"{secrets}/{tenant.name}-ca")
    node = machines.registered(tenant)

    def is_reported() -> bool:
        """File an answer: the signer issued those of the first ten seconds with what it had."""
        script, name = Script(node), csrs.new_name()
        script.put(name, script.encoded(name))
        return signer.states().get(key) == "AuthorityUnavailable"

    admin.delete(f"{secrets}/{tenant.name}-ca")
    try:
        wait_until(is_reported, what="it is reported", seconds=120, poll=2)
    finally:
        metadata = {"name": f"{tenant.name}-ca", "labels": stored["metadata"]["labels"]}
        admin.create(secrets, {**stored, "metadata": metadata})
    wait_until(lambda: signer.states().get(key) == "Served", what="the Cluster is served")
    assert node.call().status == 0
