"""The labels of Nodes follow the claims: a Node has them only while its claim holds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.maintenance.housekeeping import write_nodes
from signer.controller.maintenance.node_sync import plan_label_changes
from signer.fairness.outbox import Outbox
from signer.inventory.node_labels import ATTESTED, BOOT_STATE, POLICY, TRUST_BASIS, NodeLabelClient
from signer.kinds.attested_node import BootState
from signer.kinds.endorsement_key import Release, TrustBasis
from signer.kinds.node import Node
from signer.kinds.resources import NODES
from tests.builders.endorsement_keys import BAN
from tests.builders.scenario import HOME, NODE, NOW, PROVIDER_ID, Scenario, key_name
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

LABELS = {ATTESTED: "true", TRUST_BASIS: "Registered"}
NO_LABELS = dict.fromkeys(LABELS)


def claimed(basis: TrustBasis = TrustBasis.REGISTERED) -> Scenario:
    """Return a scenario whose node has a claim, and a Node without labels."""
    scenario = Scenario()
    scenario.put_claim(basis=basis)
    scenario.inventory.nodes = [Node(name=NODE, provider_id=PROVIDER_ID, uid="uid-1")]
    return scenario


def give_labels(scenario: Scenario, labels: Mapping[str, str]) -> None:
    """Give the Node labels."""
    [node] = scenario.inventory.nodes
    scenario.inventory.nodes = [replace(node, labels=labels)]


def plan(scenario: Scenario, *, enabled: bool = True) -> Mapping[str, str | None]:
    """Return the changes of the Node's labels."""
    changes = plan_label_changes(
        scenario.inventory.nodes, scenario.inventory, enabled=enabled, now=scenario.now
    )
    return {key: value for _, change in changes for key, value in change.items()}


@pytest.mark.parametrize("basis", TrustBasis)
def test_node_with_a_claim_is_labeled_with_its_basis(basis: TrustBasis) -> None:
    assert plan(claimed(basis)) == {**LABELS, TRUST_BASIS: basis.value}


def test_labels_say_policy_and_boot_state_of_the_last_attestation() -> None:
    scenario = claimed()
    scenario.change_claim(policy="edge", boot_state=BootState.MISMATCH)
    assert plan(scenario) == {**LABELS, POLICY: "edge", BOOT_STATE: "Mismatch"}


@pytest.mark.parametrize("name", ["", "p" * 63, "p" * 64, "-edge", "edge.", "a/b"])
def test_policy_whose_name_is_no_label_value_has_no_label(name: str) -> None:
    scenario = claimed()
    scenario.change_claim(policy=name)
    assert plan(scenario) == {**LABELS, **({POLICY: name} if name == "p" * 63 else {})}


def test_labels_of_an_earlier_attestation_are_replaced() -> None:
    scenario = claimed()
    give_labels(scenario, {**LABELS, TRUST_BASIS: "FirstUse", BOOT_STATE: "Verified"})
    assert plan(scenario) == {**LABELS, BOOT_STATE: None}
    give_labels(scenario, LABELS)
    assert plan(scenario) == {}


def _ban(scenario: Scenario) -> None:
    scenario.change_key(banned=BAN)


def _release(scenario: Scenario) -> None:
    scenario.change_key(released_from=(Release.of(HOME, provider_id=None),))


def _take_key(scenario: Scenario) -> None:
    scenario.change_key(held_by=scenario.holder(node_name="other"))


def _delete_key(scenario: Scenario) -> None:
    del scenario.store.keys[key_name(scenario.ek)]


def _delete_claim(scenario: Scenario) -> None:
    scenario.store.nodes.clear()


def _expire(scenario: Scenario) -> None:
    scenario.change_claim(not_after=NOW - timedelta(seconds=1))


def _other_machine(scenario: Scenario) -> None:
    [node] = scenario.inventory.nodes
    scenario.inventory.nodes = [replace(node, provider_id="metal://rack-9/slot-9")]


ENDS: dict[str, Callable[[Scenario], None]] = {
    "the key is banned": _ban,
    "the key is released": _release,
    "another node has the key": _take_key,
    "the key is gone": _delete_key,
    "the claim is gone": _delete_claim,
    "the last certificate has expired": _expire,
    "the Node says that it is another machine": _other_machine,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_labels_go_when_the_claim_does_not_hold(end: Callable[[Scenario], None]) -> None:
    scenario = claimed()
    give_labels(scenario, LABELS)
    end(scenario)
    assert plan(scenario) == NO_LABELS


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_new_node_without_a_claim_that_holds_gets_no_labels(
    end: Callable[[Scenario], None],
) -> None:
    scenario = claimed()
    end(scenario)
    assert plan(scenario) == {}


def test_node_that_has_no_provider_id_yet_is_labeled() -> None:
    """A cloud controller manager writes the provider ID after the kubelet created the Node."""
    scenario = claimed()
    scenario.inventory.nodes = [Node(name=NODE, provider_id="")]
    assert plan(scenario) == LABELS


def test_labels_that_the_policy_disables_are_removed() -> None:
    scenario = claimed()
    assert plan(scenario, enabled=False) == {}
    give_labels(scenario, LABELS)
    assert plan(scenario, enabled=False) == NO_LABELS


def test_cluster_without_labels_does_not_depend_on_complete_caches() -> None:
    scenario = claimed()
    scenario.inventory.filled = False
    assert plan(scenario, enabled=False) == {}


def test_labels_of_a_paused_cluster_do_not_change() -> None:
    """`clusterctl move` deletes the claims here after it has created them in the new cluster."""
    scenario = claimed()
    give_labels(scenario, LABELS)
    _delete_claim(scenario)
    scenario.inventory.of = replace(scenario.inventory.of, paused=True)
    assert plan(scenario) == {}


def test_incomplete_caches_remove_no_labels() -> None:
    scenario = claimed()
    give_labels(scenario, LABELS)
    scenario.inventory.filled = False
    with pytest.raises(ApiServerUnavailable):
        plan(scenario)


def write_labels(api: FakeCluster, count: int) -> None:
    """Label this number of Nodes of a cluster."""
    nodes = [Node(name=f"node-{n}", provider_id="", uid=f"uid-of-node-{n}") for n in range(count)]
    api.put(NODES.collection_path(), *({"metadata": {"name": node.name}} for node in nodes))
    client = NodeLabelClient(FakeClient(api))
    writes = [(node.name, partial(client.change, node, LABELS)) for node in nodes]
    write_nodes(writes, Outbox("not written", "node", lambda: 0.0))


def test_node_that_cannot_be_written_costs_only_itself() -> None:
    api = FakeCluster()
    api.intercept(500, path="node-1")
    write_labels(api, 3)
    labeled = [path[-1] for path, node in api.objects.items() if "labels" in node["metadata"]]
    assert sorted(labeled) == ["0", "2"]


def test_missing_permission_is_reported() -> None:
    api = FakeCluster()
    api.intercept(HTTPStatus.FORBIDDEN, "PATCH")
    with pytest.raises(ApiServerUnavailable):
        write_labels(api, 1)
