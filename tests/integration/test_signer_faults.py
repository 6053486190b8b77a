"""The signer is killed at every write and disconnected in every way; a join still makes one claim.

Relays between the signer and both API servers cause the faults, so the product needs no test hook.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.api_relay import ApiRelay, Fault, relay
from tests.harness.client import Client
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.node import Node, finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer, wait_until_unshared, without_leases
from tests.harness.workload import SIGNER
from tests.integration import csrs

PATIENCE = {"timeoutSeconds": 90}
"""Settings for a call during which a second signer is started."""

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
WRITES = (
    "the challenge keys",
    "the challenge",
    "EndorsementKey created",
    "AttestedNode created",
    "EndorsementKey held",
    "Approved",
    "the certificate",
)
"""Writes of the signer during the first join, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """The relays to both API servers."""

    fleet: Fleet
    management: ApiRelay
    workload: ApiRelay

    def signer(self, directory: Path) -> Signer:
        """Make a signer whose requests go through the relays."""
        text = self.fleet.management.signer_kubeconfig()
        through = text.replace(self.fleet.management.url, self.management.url)
        return Signer(self.fleet, directory, kubeconfig=through)

    def reset(self) -> None:
        """Delete the challenge keys and all CSRs, so that the next join causes every write."""
        namespace = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        empty(self.fleet.management.admin, namespace, "node-attestation-challenge-keys")
        empty(self.fleet.first.workload.admin, csrs.CSRS)

    def arm(self, fault: Fault | None) -> None:
        """Set the fault for the next writes to either API server; `None` for no fault."""
        self.management.fault = self.workload.fault = fault


@pytest.fixture(scope="module")
def relayed(
    fleet: Fleet, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Relayed]:
    """Send signers through relays. The signer of the other tests is stopped meanwhile."""
    tenant, directory = fleet.first, tmp_path_factory.mktemp("relays")
    identity = tenant.workload.authority.client(SIGNER, SIGNER)
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-kubeconfig"
    direct = fleet.management.admin.get(path)["data"]
    text = base64.b64decode(direct["value"]).decode()
    signer.stop()
    with (
        relay(fleet.management, directory / "management") as management,
        relay(tenant.workload, directory / "workload", identity) as workload,
    ):
        through = text.replace(tenant.workload.url, workload.url)
        value = base64.b64encode(through.encode()).decode()
        fleet.management.admin.patch(path, {"data": {"value": value}})
        yield Relayed(fleet=fleet, management=management, workload=workload)
    fleet.management.admin.patch(path, {"data": direct})
    signer.start()


def empty(admin: Client, collection: str, *names: str) -> None:
    """Delete the objects with these names from a collection; without names, all of them."""
    for item in admin.list(collection):
        name = item["metadata"]["name"]
        if not names or name in names:
            admin.delete(f"{collection}/{name}")


def require_claim(node: Node, fleet: Fleet) -> dict[str, object]:
    """Require that the node has exactly one complete claim; return the holder of its key."""
    claimed = csrs.claim(node, fleet.management.admin)
    assert claimed["endorsementKey"] in next(iter(node.registration().values()))
    path = (
        f"/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys/{claimed['endorsementKey']}"
    )
    holder: dict[str, object] = fleet.management.admin.get(path)["spec"]["heldBy"]
    assert (holder["nodeName"], holder["providerID"]) == (node.name, node.provider_id)
    return holder


@pytest.mark.parametrize("before", [True, False], ids=["not received", "not answered"])
@pytest.mark.parametrize("write", range(1, len(WRITES) + 1), ids=WRITES)
def test_a_second_signer_completes_what_a_killed_one_began(
    relayed: Relayed,
    machines: Machines,
    tmp_path: Path,
    write: int,
    before: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    first, second = (relayed.signer(tmp_path / name) for name in ("first", "second"))
    fault = Fault(at_write=write, before=before, happen=first.kill)
    node = machines.registered(relayed.fleet.first, settings=PATIENCE)
    relayed.reset()
    relayed.arm(fault)
    first.start()
    call = node.start()
    wait_until(lambda: fault.happened, what=f"write {write}")
    relayed.arm(None)
    # The second one would first wait whether the holder of this Lease still renews it.
    empty(relayed.fleet.management.admin, LEASES)
    with second:
        assert finished(call).status == 0
    require_claim(node, relayed.fleet)
    [answer] = csrs.answers(node)
    assert set(csrs.conditions(node.tenant.workload.admin, answer["metadata"]["name"])) == {
        "Approved"
    }


def test_a_first_join_causes_the_listed_writes(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """The tests above kill the signer only at the listed writes."""
    counting = Fault(at_write=0, before=True, happen=lambda: None)
    node = machines.registered(relayed.fleet.first)
    relayed.reset()
    relayed.arm(counting)
    with relayed.signer(tmp_path / "signer"):
        assert node.call().status == 0
    relayed.arm(None)
    kinds = [
        (line.split()[0], line.split("/")[-1 if line.startswith("POST") else -2])
        for line in counting.seen
    ]
    assert kinds[:5] == [
        ("POST", "secrets"),
        ("PATCH", "certificatesigningrequests"),
        ("POST", "endorsementkeys"),
        ("POST", "attestednodes"),
        ("PATCH", "endorsementkeys"),
    ]
    assert [line.rpartition("/")[2] for line in counting.seen[5:]] == ["approval", "status"]
    assert len(kinds) == len(WRITES)


@pytest.mark.parametrize("as_event", [True, False], ids=["event", "status"])
def test_expired_watches_are_replaced(
    relayed: Relayed,
    machines: Machines,
    tmp_path: Path,
    as_event: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """After 410 everything is listed again, and no event of the meantime is missed."""
    relays = (relayed.management, relayed.workload)
    with relayed.signer(tmp_path / "signer") as signer:
        assert machines.registered(relayed.fleet.first).call().status == 0
        for each in relays:
            each.expire_watches(as_event=as_event)
            each.cut()
        wait_until(lambda: not any(r.expiring for r in relays), what="every watch has expired")
        assert machines.registered(relayed.fleet.first).call().status == 0
        assert not [line for line in signer.lines if line["level"] == "error"]


def test_connections_that_were_cut_are_replaced(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    with relayed.signer(tmp_path / "signer"):
        assert machines.registered(relayed.fleet.first).call().status == 0
        for _ in range(3):
            relayed.management.cut()
            relayed.workload.cut()
        assert machines.registered(relayed.fleet.first).call().status == 0


def test_the_signer_continues_after_a_restart_of_an_api_server(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """First the workload cluster, then the management cluster."""
    fleet = relayed.fleet
    with relayed.signer(tmp_path / "signer") as signer:
        for server in (fleet.first.workload, fleet.management):
            server.stop_apiserver()
            server.start_apiserver()
            assert machines.registered(fleet.first).call().status == 0
        assert not [line for line in signer.lines if line["level"] == "error"]


def test_a_cluster_that_is_away_does_not_delay_the_others(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    fleet = relayed.fleet
    with relayed.signer(tmp_path / "signer"):
        assert machines.registered(fleet.second).call().status == 0
        fleet.first.workload.stop_apiserver()
        try:
            assert machines.registered(fleet.second).call().status == 0
        finally:
            fleet.first.workload.start_apiserver()
        assert machines.registered(fleet.first).call().status == 0


def times_issued(answer: str, *signers: Signer) -> int:
    """Count the `issued` lines of an answer. The first may be logged after the certificate."""

    def lines() -> list[str]:
        outcomes = (line["outcome"] for signer in signers for line in signer.verdicts(answer))
        return [outcome for outcome in outcomes if outcome == "issued"]

    wait_until(lambda: bool(lines()), what=f"a signer logs that it issued {answer}")
    return len(lines())


def test_two_signers_at_once_issue_one_certificate_for_each_answer(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """Five nodes join while two replicas watch the same CSRs.

    They do so for some seconds when a Cluster moves from one to the other.
    """
    nodes = [machines.registered(relayed.fleet.first) for _ in range(5)]
    with (
        without_leases(relayed.fleet),
        relayed.signer(tmp_path / "first") as first,
        relayed.signer(tmp_path / "second") as second,
    ):
        wait_until_unshared(first, second)
        calls = [node.start() for node in nodes]
        assert [finished(call).status for call in calls] == [0] * len(nodes)
        for node in nodes:
            require_claim(node, relayed.fleet)
            [answer] = csrs.answers(node)
            name = answer["metadata"]["name"]
            assert times_issued(name, first, second) == 1
            assert len(csrs.offers(node)) == 1
        for signer in (first, second):
            assert not [line for line in signer.lines if line["level"] == "error"]
