"""Labels of attested Nodes, on an API server with NodeRestriction."""

from collections.abc import Iterator

import pytest

from tests.harness.client import ApiError, Client
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.harness.workload import PACKAGING, SIGNER
from tests.integration import csrs
from tests.integration.credentials import client_of
from tests.integration.kubelet_nodes import NODES, PREFIX, body_of, labels_of

NO_VALUE = {"sha256": {str(index): ["00" * 32] for index in range(8)}}
WARN = {"pcrs": {"mode": "Warn", "allowed": NO_VALUE}}
LABELS = {
    f"{PREFIX}attested": "true",
    f"{PREFIX}trust-basis": "Registered",
    f"{PREFIX}policy": "policy-0",
    f"{PREFIX}boot-state": "Mismatch",
}


@pytest.fixture(scope="module")
def labeling(fleet: Fleet, signer: Signer) -> Iterator[Signer]:
    """Label Nodes in both clusters; the second one lacks the right to change Nodes."""
    workload = fleet.first.workload
    file = str(PACKAGING / "node-labels-rbac.yaml")
    workload.kubectl("apply", "--server-side", "-f", file)
    account = workload.client(SIGNER, SIGNER)
    wait_until(lambda: account.may("patch", "nodes"), what="the API server applies the role")
    specs = (of_cluster(each, nodeLabels="Enabled", **WARN) for each in fleet.tenants)
    with signer.with_policies(*specs) as running:
        yield running
    signer.wait_until_ready()
    for node in workload.admin.get(NODES)["items"]:
        if labels_of(workload.admin, node["metadata"]["name"]):
            workload.admin.delete(f"{NODES}/{node['metadata']['name']}")
    workload.kubectl("delete", "-f", file)


def joined(machines: Machines, fleet: Fleet) -> tuple[Node, Client]:
    """Join a node in the first cluster, and return it with a client that has its certificate."""
    node = machines.registered(fleet.first)
    assert node.call().status == 0
    return node, client_of(node)


def wait_for_labels(node: Node, expected: dict[str, str], seconds: float = 60) -> None:
    """Wait until a Node has these labels of the signer, and no other."""
    admin = node.tenant.workload.admin
    wait_until(
        lambda: labels_of(admin, node.name) == expected,
        what=f"{node.name} has the labels {expected}",
        seconds=seconds,
    )


@pytest.mark.usefixtures("labeling")
def test_attested_node_is_labeled_also_when_it_is_created_again(
    machines: Machines, fleet: Fleet
) -> None:
    node, kubelet = joined(machines, fleet)
    kubelet.create(NODES, body_of(node))
    wait_for_labels(node, LABELS)
    fleet.first.workload.admin.delete(f"{NODES}/{node.name}")
    kubelet.create(NODES, body_of(node))
    wait_for_labels(node, LABELS)


@pytest.mark.usefixtures("labeling")
def test_kubelet_cannot_set_change_or_remove_the_labels(machines: Machines, fleet: Fleet) -> None:
    node, kubelet = joined(machines, fleet)
    with pytest.raises(ApiError, match=r"^403 .*is not allowed to set the following labels"):
        kubelet.create(NODES, body_of(node, {f"{PREFIX}boot-state": "Verified"}))
    kubelet.create(NODES, body_of(node))
    wait_for_labels(node, LABELS)
    for value in ("Verified", None):
        with pytest.raises(ApiError, match=r"^403 .*is not allowed to modify labels"):
            kubelet.patch(
                f"{NODES}/{node.name}", {"metadata": {"labels": {f"{PREFIX}boot-state": value}}}
            )
    kubelet.patch(f"{NODES}/{node.name}", {"metadata": {"labels": {"example.com/own": "any"}}})
    assert labels_of(fleet.first.workload.admin, node.name) == LABELS


@pytest.mark.usefixtures("labeling")
def test_labels_of_a_node_that_never_attested_are_removed(fleet: Fleet) -> None:
    """An administrator, or another program with the right to change Nodes, wrote them."""
    admin = fleet.first.workload.admin
    admin.create(NODES, {"metadata": {"name": "never-attested", "labels": LABELS}})
    wait_until(lambda: not labels_of(admin, "never-attested"), what="the labels are removed")
    admin.delete(f"{NODES}/never-attested")


@pytest.mark.usefixtures("labeling")
def test_banned_node_loses_its_labels(machines: Machines, fleet: Fleet) -> None:
    """Within a round of maintenance."""
    node, kubelet = joined(machines, fleet)
    kubelet.create(NODES, body_of(node))
    wait_for_labels(node, LABELS)
    key = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    ban = {"spec": {"banned": {"reason": "stolen", "by": "test", "since": "2026-11-22T00:00:00Z"}}}
    fleet.management.admin.patch(f"{csrs.ENDORSEMENT_KEYS}/{key}", ban)
    wait_for_labels(node, {}, seconds=120)


@pytest.mark.usefixtures("labeling")
def test_api_server_limits_no_provider_id(machines: Machines, fleet: Fleet) -> None:
    """So the signer must read a Node with one of any length."""
    node, kubelet = joined(machines, fleet)
    long = "x" * 100_000
    kubelet.create(NODES, {"metadata": {"name": node.name}, "spec": {"providerID": long}})
    admin = fleet.first.workload.admin
    assert admin.get(f"{NODES}/{node.name}")["spec"]["providerID"] == long


@pytest.mark.usefixtures("labeling")
def test_change_of_a_node_that_was_created_again_is_refused(
    machines: Machines, fleet: Fleet
) -> None:
    """The signer relies on the UID in its patch."""
    node, kubelet = joined(machines, fleet)
    kubelet.create(NODES, body_of(node))
    change = {"metadata": {"uid": "00000000-0000-4000-8000-000000000000", "labels": {"any": "one"}}}
    with pytest.raises(ApiError, match=r"^422 .*uid.*field is immutable"):
        fleet.first.workload.admin.patch(f"{NODES}/{node.name}", change)


@pytest.mark.usefixtures("labeling")
def test_missing_right_is_shown_and_the_cluster_is_served(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered(fleet.second)
    assert node.call().status == 0
    client_of(node).create(NODES, body_of(node))
    events = f"/api/v1/namespaces/{fleet.second.namespace}/events"

    def is_shown() -> bool:
        return any(
            event["reason"] == "NodeLabelsForbidden"
            and "apply node-labels-rbac.yaml there" in event["message"]
            for event in fleet.management.admin.get(events)["items"]
        )

    wait_until(is_shown, what="an Event names the file with the right", seconds=120)
    assert machines.registered(fleet.second).call().status == 0


def test_labels_go_with_the_policy(machines: Machines, fleet: Fleet, labeling: Signer) -> None:
    node, kubelet = joined(machines, fleet)
    kubelet.create(NODES, body_of(node))
    wait_for_labels(node, LABELS)
    with labeling.with_policies(of_cluster(fleet.first)):
        wait_for_labels(node, {})
    labeling.wait_until_ready()
