"""The signer, killed at every write and cut off in every way: each join still ends in one claim.

Relays stand between it and both API servers, so that nothing in the product helps the test.
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
from tests.harness.signer import Signer
from tests.harness.workload import SIGNER
from tests.integration import csrs

PATIENCE = {"timeoutSeconds": 90}
"""For a call during which a second signer has to be started."""

WRITES = (
    "the master keys",
    "the challenge",
    "EndorsementKey created",
    "AttestedNode created",
    "EndorsementKey held",
    "Approved",
    "the certificate",
)
"""What the first join of all makes the signer write, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """Both API servers as signers of these tests reach them."""

    fleet: Fleet
    management: ApiRelay
    workload: ApiRelay

    def signer(self, folder: Path) -> Signer:
        """Make a signer that goes through the relays."""
        text = self.fleet.management.signer_kubeconfig()
        through = text.replace(self.fleet.management.url, self.management.url)
        return Signer(self.fleet, folder, kubeconfig=through)

    def start_over(self) -> None:
        """Leave nothing for the next signer to write but what the next node makes it write."""
        namespace = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        empty(self.fleet.management.admin, namespace, "node-attestation-challenge-keys")
        empty(self.fleet.first.workload.admin, csrs.CSRS)

    def arm(self, fault: Fault | None) -> None:
        """Let a fault happen at one of the next writes to either API server."""
        self.management.fault = self.workload.fault = fault


@pytest.fixture(scope="module")
def relayed(
    fleet: Fleet, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Relayed]:
    """Send signers through relays; the one that serves all other tests rests meanwhile."""
    tenant, folder = fleet.first, tmp_path_factory.mktemp("relays")
    identity = tenant.workload.authority.client(SIGNER, SIGNER)
    path = f"/api/v1/namespaces/{tenant.namespace}/secrets/{tenant.name}-kubeconfig"
    direct = fleet.management.admin.get(path)["data"]
    text = base64.b64decode(direct["value"]).decode()
    signer.stop()
    with (
        relay(fleet.management, folder / "management") as management,
        relay(tenant.workload, folder / "workload", identity) as workload,
    ):
        through = text.replace(tenant.workload.url, workload.url)
        value = base64.b64encode(through.encode()).decode()
        fleet.management.admin.patch(path, {"data": {"value": value}})
        yield Relayed(fleet=fleet, management=management, workload=workload)
    fleet.management.admin.patch(path, {"data": direct})
    signer.start()


def empty(admin: Client, collection: str, *names: str) -> None:
    """Delete the objects of a collection that have one of the names, or all."""
    for item in admin.list(collection):
        name = item["metadata"]["name"]
        if not names or name in names:
            admin.delete(f"{collection}/{name}")


def joined(node: Node, fleet: Fleet) -> dict[str, object]:
    """Check that a node has exactly one whole claim; return its EndorsementKey's holder."""
    claimed = csrs.claim(node, fleet.management.admin)
    assert claimed["endorsementKey"] in next(iter(node.registration().values()))
    path = (
        f"/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys/{claimed['endorsementKey']}"
    )
    holder: dict[str, object] = fleet.management.admin.get(path)["spec"]["heldBy"]
    assert (holder["nodeName"], holder["providerID"]) == (node.name, node.provider_id)
    return holder


@pytest.mark.parametrize("before", [True, False], ids=["unheard", "unanswered"])
@pytest.mark.parametrize("write", range(1, len(WRITES) + 1), ids=WRITES)
def test_a_signer_killed_at_a_write_is_followed_by_the_next(
    relayed: Relayed,
    machines: Machines,
    tmp_path: Path,
    write: int,
    before: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    first, second = (relayed.signer(tmp_path / name) for name in ("first", "second"))
    fault = Fault(at_write=write, before=before, happen=first.kill)
    node = machines.registered(relayed.fleet.first, settings=PATIENCE)
    relayed.start_over()
    relayed.arm(fault)
    first.start()
    call = node.start()
    wait_until(lambda: fault.happened, what=f"write {write}")
    relayed.arm(None)
    with second:
        assert finished(call).status == 0
    joined(node, relayed.fleet)
    [answer] = csrs.answers(node)
    assert set(csrs.conditions(node.tenant.workload.admin, answer["metadata"]["name"])) == {
        "Approved"
    }


def test_a_first_join_writes_what_is_listed_here(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """A write that is not listed would be one at which nobody is killed."""
    counting = Fault(at_write=0, before=True, happen=lambda: None)
    node = machines.registered(relayed.fleet.first)
    relayed.start_over()
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
def test_watches_that_expired_are_begun_anew(
    relayed: Relayed,
    machines: Machines,
    tmp_path: Path,
    as_event: bool,  # noqa: FBT001 # a parameter of the case
) -> None:
    """410: everything is listed again, and nothing that came meanwhile is missed."""
    relays = (relayed.management, relayed.workload)
    with relayed.signer(tmp_path / "signer") as signer:
        assert machines.registered(relayed.fleet.first).call().status == 0
        for each in relays:
            each.expire_watches(as_event=as_event)
            each.cut()
        wait_until(lambda: not any(r.expiring for r in relays), what="every watch has expired")
        assert machines.registered(relayed.fleet.first).call().status == 0
        assert not [line for line in signer.lines if line["level"] == "error"]


def test_connections_that_were_cut_are_made_again(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    with relayed.signer(tmp_path / "signer"):
        assert machines.registered(relayed.fleet.first).call().status == 0
        for _ in range(3):
            relayed.management.cut()
            relayed.workload.cut()
        assert machines.registered(relayed.fleet.first).call().status == 0


def test_an_api_server_that_restarts_is_waited_for(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """Management and workload cluster in turn; the signer goes on when they are back."""
    fleet = relayed.fleet
    with relayed.signer(tmp_path / "signer") as signer:
        for server in (fleet.first.workload, fleet.management):
            server.stop_apiserver()
            server.start_apiserver()
            assert machines.registered(fleet.first).call().status == 0
        assert not [line for line in signer.lines if line["level"] == "error"]


def test_a_cluster_that_is_away_costs_the_others_nothing(
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
    """Count the lines that tell of an answer's certificate; the first may come after that."""

    def lines() -> list[str]:
        told = (line["outcome"] for signer in signers for line in signer.verdicts(answer))
        return [outcome for outcome in told if outcome == "issued"]

    wait_until(lambda: bool(lines()), what=f"a signer tells that it gave {answer} a certificate")
    return len(lines())


def test_two_signers_at_once_are_harmless(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """Five nodes join while two replicas see everything that is filed."""
    nodes = [machines.registered(relayed.fleet.first) for _ in range(5)]
    with relayed.signer(tmp_path / "first") as first, relayed.signer(tmp_path / "second") as second:
        calls = [node.start() for node in nodes]
        assert [finished(call).status for call in calls] == [0] * len(nodes)
        for node in nodes:
            joined(node, relayed.fleet)
            [answer] = csrs.answers(node)
            name = answer["metadata"]["name"]
            assert times_issued(name, first, second) == 1
            assert len(csrs.offers(node)) == 1
        for signer in (first, second):
            assert not [line for line in signer.lines if line["level"] == "error"]
