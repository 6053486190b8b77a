"""The signer is killed at every write and disconnected in every way; a join still makes one claim.

Later exchanges of a node are in test_faults_at_writes.py.
"""

from pathlib import Path

import pytest

from tests.harness import kubeconfig, pki
from tests.harness.api_relay import Fault
from tests.harness.machines import Machines
from tests.harness.node import finished
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.integration import csrs
from tests.integration.relays import LEASES, PATIENCE, Relayed, empty, require_claim

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
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0
        for each in relays:
            each.expire_watches(as_event=as_event)
            each.cut()
        wait_until(
            lambda: not any(r.expiring for r in relays), what="every watch has expired", seconds=120
        )
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0
        assert not [line for line in signer.lines if line["level"] == "error"]


def test_connections_that_were_cut_are_replaced(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    with relayed.signer(tmp_path / "signer"):
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0
        for _ in range(3):
            relayed.management.cut()
            relayed.workload.cut()
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0


def test_nodes_join_while_each_request_takes_longer_than_three_seconds(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """Three such requests in a row opened the circuit breaker, and five of ten nodes joined."""
    nodes = [machines.registered(relayed.fleet.first, settings=PATIENCE) for _ in range(4)]
    with relayed.signer(tmp_path / "signer") as signer:
        relayed.workload.latency = lambda: 3.3
        calls = [node.start() for node in nodes]
        assert [finished(call).status for call in calls] == [0] * len(calls)
        relayed.workload.latency = float
        assert not [line for line in signer.lines if "circuit breaker" in line["event"]]


def test_a_rotated_authority_of_the_management_cluster_needs_no_restart(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """The CA was read once: nothing worked until a restart, and `/readyz` was 200."""
    authority, relay = pki.Authority.make("rotated", pki.ec_key()), relayed.management
    management = relayed.fleet.management
    token = management.signer_kubeconfig().partition("token: ")[2].split()[0]
    with relayed.signer(tmp_path / "signer") as signer:
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0
        relay.rotate(authority)
        wait_until(lambda: _fails_to_verify(signer), what="the handshake fails")
        certificate = authority.pair.certificate
        signer.write_kubeconfig(kubeconfig.with_token(relay.url, certificate, token))
        assert machines.registered(relayed.fleet.first, settings=PATIENCE).call().status == 0
    relay.rotate(management.authority)


def _fails_to_verify(signer: Signer) -> bool:
    return any("CERTIFICATE_VERIFY_FAILED" in line.get("detail", "") for line in signer.lines)


def test_the_signer_continues_after_a_restart_of_an_api_server(
    relayed: Relayed, machines: Machines, tmp_path: Path
) -> None:
    """First the workload cluster, then the management cluster."""
    fleet = relayed.fleet
    with relayed.signer(tmp_path / "signer") as signer:
        for server in (fleet.first.workload, fleet.management):
            server.stop_apiserver()
            server.start_apiserver()
            assert machines.registered(fleet.first, settings=PATIENCE).call().status == 0
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
        assert machines.registered(fleet.first, settings=PATIENCE).call().status == 0


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
    nodes = [machines.registered(relayed.fleet.first, settings=PATIENCE) for _ in range(5)]
    with (
        relayed.signer(tmp_path / "first") as first,
        relayed.signer(tmp_path / "second").share_with_no_other() as second,
    ):
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
