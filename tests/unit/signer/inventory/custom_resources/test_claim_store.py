"""Whether a Machine exists, by the API server: what cannot be read frees no key and no name."""

from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.errors import AttestedNodeUnreadable
from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.attested_node import ATTESTED_NODES, encode_attested_node
from signer.kinds.machine import MachineState
from tests.builders.kube_objects import HOME, PROVIDER_ID, cluster, machine, pool
from tests.builders.stored_claims import NODE
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import ATTESTATION, CAPI

NAMESPACE = f"/apis/{CAPI}/namespaces/{HOME.namespace}"


def liveness(
    *machines: Any,  # noqa: ANN401 - objects
    pools: tuple[Any, ...] = (),
    name: str = "",
    paused: bool = False,
    server: FakeCluster | None = None,
) -> MachineState:
    server = server or FakeCluster()
    server.put(f"{NAMESPACE}/clusters", {**cluster(), "spec": {"paused": paused}})
    server.put(f"{NAMESPACE}/machines", *machines)
    server.put(f"{NAMESPACE}/machinepools", *pools)
    return KubeClaimStore(FakeClient(server)).machine_state(HOME, PROVIDER_ID, name)


def unreadable(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["labels"] = {"pool": True}
    return body


def other() -> dict[str, Any]:
    body = machine("machine-2")
    body["spec"]["providerID"] = "metal://elsewhere"
    return body


def test_machines_and_pool_members_are_present() -> None:
    assert liveness(other()) is MachineState.ABSENT
    assert liveness(other(), machine()) is MachineState.PRESENT
    assert liveness(pools=(pool("pool-1", "metal://elsewhere"),)) is MachineState.ABSENT
    assert liveness(pools=(pool("pool-1", PROVIDER_ID),)) is MachineState.PRESENT


def test_another_machine_with_the_provider_id_is_not_the_one_of_the_claim() -> None:
    """A provider ID of hardware goes from one Machine to the next."""
    assert liveness(machine("machine-1"), name="machine-1") is MachineState.PRESENT
    assert liveness(machine("machine-2"), name="machine-1") is MachineState.ABSENT
    assert liveness(pools=(pool("pool-1", PROVIDER_ID),), name="machine-1") is MachineState.ABSENT


def test_machine_that_a_paused_cluster_lacks_may_come() -> None:
    """`clusterctl move` makes the Machines after the claims that name them."""
    assert liveness(other(), paused=True) is MachineState.DELETING
    assert liveness(other(), machine(), paused=True) is MachineState.PRESENT


def test_unreadable_machine_leaves_the_state_undecided() -> None:
    """It is retried, and the log names the object to repair; nothing is freed before."""
    bodies = unreadable(machine()), unreadable(pool("pool-1", PROVIDER_ID))
    for machines, pools, plural in (
        ((bodies[0],), (), "machines"),
        ((), (bodies[1],), "machinepools"),
    ):
        with pytest.raises(ApiServerUnavailable, match=f"/{plural} cannot be read") as caught:
            liveness(other(), *machines, pools=pools)
        name = (*machines, *pools)[0]["metadata"]["name"]
        assert caught.value.detail.endswith(
            f" team-a/{name}: Expected `str`, got `bool` - at `$.metadata.labels[...]`"
        )
    with pytest.raises(ApiServerUnavailable, match="the Machine cannot be read") as caught:
        liveness(bodies[0], name="machine-1")
    assert caught.value.detail.startswith(f"{NAMESPACE}/machines/machine-1: Expected `str`")


def test_conflict_reads_no_list_of_machines_while_the_node_of_the_claim_exists() -> None:
    """A namespace may have 10,000 Machines, and each conflict and each old claim read them all."""
    for pools, name in (((), "machine-1"), ((), "machine-2"), ((pool("pool-1", PROVIDER_ID),), "")):
        server = FakeCluster()
        liveness(machine("machine-1"), pools=pools, name=name, server=server)
        assert f"{NAMESPACE}/machines" not in {request.path for request in server.requests}


def test_a_key_is_looked_for_in_the_nodes_of_all_namespaces() -> None:
    """One that cannot be read names no key (decision 56)."""
    server = FakeCluster()
    store = KubeClaimStore(FakeClient(server))
    unreadable = encode_attested_node(NODE.replace(name="other"), "")
    unreadable["spec"]["notAfter"] = "0000-01-01T00:00:00Z"
    abroad = NODE.replace(namespace="team-b")
    for node in (NODE, abroad):
        path = ATTESTED_NODES.collection_path(node.cluster.namespace)
        server.put(path, encode_attested_node(node, ""), unreadable)
    found = store.attested_nodes_with_key(NODE.endorsement_key)
    assert [node.cluster for node in found] == [NODE.cluster, abroad.cluster]
    assert not store.attested_nodes_with_key("cd" * 32)


def test_unreadable_attested_node_has_a_reason_of_its_own() -> None:
    """A key that an operator released is free then; the log names the object to repair."""
    server = FakeCluster()
    node = {"metadata": {"name": "node-1.blue"}, "spec": {"notAfter": "0000-01-01T00:00:00Z"}}
    server.put(f"/apis/{ATTESTATION}/namespaces/{HOME.namespace}/attestednodes", node)
    with pytest.raises(AttestedNodeUnreadable) as caught:
        KubeClaimStore(FakeClient(server)).attested_node(HOME, "node-1")
    assert caught.value.detail.startswith("team-a/node-1.blue: ")
