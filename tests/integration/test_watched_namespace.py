"""A signer that watches one namespace serves it alone, also if others serve all namespaces."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import ACCOUNT, NAMESPACE
from tests.harness.process import wait_until
from tests.harness.signer import Signer, opt_in
from tests.integration import csrs
from tests.integration.scripted_node import Script

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/node-attestation-signer"


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


@pytest.fixture
def side_by_side(fleet: Fleet, signer: Signer, tmp_path: Path) -> Iterator[tuple[Signer, Signer]]:
    """Run a signer for each namespace, and none for all."""
    signer.stop()
    first, second = (
        Signer(fleet, tmp_path / tenant.namespace, namespace=tenant.namespace)
        for tenant in fleet.tenants
    )
    with ExitStack() as stack:
        stack.callback(signer.start)
        for each in (first, second):
            stack.enter_context(each)
        yield first, second


@contextmanager
def claims_of_one_namespace_only(fleet: Fleet) -> Iterator[None]:
    """Let signers read AttestedNodes in the namespaces of the fleet, and not in all at once."""
    admin = fleet.management.admin
    rules = admin.get(ROLE)["rules"]
    claims = [rule for rule in rules if rule["resources"] == ["attestednodes"]]
    head = {"metadata": {"name": "claims"}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "claims"}
    paths = [f"{RBAC}/namespaces/{tenant.namespace}" for tenant in fleet.tenants]
    for path in paths:
        admin.create(f"{path}/roles", {**head, "rules": claims})
        binding = {**head, "roleRef": reference, "subjects": [subject]}
        admin.create(f"{path}/rolebindings", binding)
    admin.patch(ROLE, {"rules": [rule for rule in rules if rule not in claims]})
    try:
        yield
    finally:
        admin.patch(ROLE, {"rules": rules})
        for path in paths:
            admin.delete(f"{path}/rolebindings/claims")
            admin.delete(f"{path}/roles/claims")


def file_answer(script: Script) -> str:
    """File the answer of an honest node, and return its name."""
    name = csrs.new_name()
    return script.put(name, script.encoded(name))


def test_one_tpm_gets_no_second_node_from_the_signer_of_another_namespace(
    side_by_side: tuple[Signer, Signer], fleet: Fleet, machines: Machines
) -> None:
    """Only the AttestedNode names the key: a crash, a prune or `clusterctl move` lost the other."""
    _, second = side_by_side
    for tenant in fleet.tenants:
        opt_in(fleet, tenant)
    node = machines.registered(fleet.first)
    assert node.call().status == 0
    key = csrs.claim(node, fleet.management.admin)["endorsementKey"]
    fleet.management.admin.delete(f"{csrs.ENDORSEMENT_KEYS}/{key}")
    elsewhere = machines.power_on(fleet.second, tpm=node.tpm)
    machines.register(elsewhere)
    with claims_of_one_namespace_only(fleet):
        script = Script(elsewhere)
        answer = file_answer(script)
        csrs.waiting_for(script.client, answer, "PermissionMissing")
    [alarm, *_] = [line for line in second.verdicts(answer) if line.get("alarm")]
    assert (alarm["outcome"], alarm["reason"]) == ("retried", "PermissionMissing")
    assert 'cannot list resource \\"attestednodes\\"' in alarm["detail"]
    assert "at the cluster scope" in alarm["detail"]
    csrs.waiting_for(script.client, answer, "EndorsementKeyRegistrationConflict")
    second.stop()
    second.start()
    again = Script(elsewhere)
    csrs.waiting_for(again.client, file_answer(again), "EndorsementKeyRegistrationConflict")
    claims = csrs.ATTESTED_NODES.format(fleet.second.namespace)
    assert not [
        claim
        for claim in fleet.management.admin.list(claims)
        if claim["spec"]["endorsementKey"] == key
    ]


def opened_clusters(signer: Signer) -> set[str]:
    return {line["cluster"] for line in signer.lines if line["event"] == "cluster opened"}
