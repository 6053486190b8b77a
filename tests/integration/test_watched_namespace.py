"""A signer that watches one namespace serves it alone, also if others serve all namespaces."""

from pathlib import Path

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.process import wait_until
from tests.harness.signer import Signer, opt_in


def test_a_signer_serves_only_the_clusters_of_its_namespace(
    fleet: Fleet, machines: Machines, tmp_path: Path
) -> None:
    for tenant in fleet.tenants:
        opt_in(fleet, tenant)
    tenant = fleet.first
    node = machines.registered(tenant)
    with Signer(fleet, tmp_path / "signer", namespace=tenant.namespace) as signer:
        # Another signer may run for the fleet and issue first, so only the opened clusters count.
        wait_until(
            lambda: bool(opened_clusters(signer)), what="the signer opens its workload cluster"
        )
        assert node.call().status == 0
        opened = opened_clusters(signer)
    assert opened == {f"{tenant.namespace}/{tenant.name}"}


def test_cluster_of_the_watched_namespace_is_served_by_the_pinned_replica_alone(
    fleet: Fleet, signer: Signer, tmp_path: Path
) -> None:
    first, second = ((tenant.namespace, tenant.name) for tenant in fleet.tenants)
    with Signer(fleet, tmp_path / "pinned", namespace=fleet.first.namespace) as pinned:
        wait_until(
            lambda: second in signer.states() and first not in signer.states(),
            what="the other one closes it",
        )
        wait_until(lambda: pinned.states() == {first: "Served"}, what="the pinned one serves it")
    wait_until(lambda: signer.states().get(first) == "Served", what="the other one takes over")


def opened_clusters(signer: Signer) -> set[str]:
    return {line["cluster"] for line in signer.lines if line["event"] == "cluster opened"}
