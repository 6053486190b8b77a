"""Connections are cut, and signers are killed and stopped, at each write of every exchange.

test_signer_faults.py kills signers during the first join. test_plugin_crash.py kills the plugin.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Final

import pytest

from tests.harness.api_relay import Fault
from tests.harness.machines import Machines
from tests.harness.node import Node, finished
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.harness.tpm import TrustDomain
from tests.integration import csrs
from tests.integration.credentials import credential_id
from tests.integration.relays import LEASES, PATIENCE, Relayed, empty, require_claim

SECONDS: Final = 120
WRITES: Final = {
    "challenge": r"^PATCH .*/certificatesigningrequests/[^/]+$",
    "EndorsementKey created": r"^POST .*/endorsementkeys$",
    "AttestedNode": r" .*/attestednodes",
    "EndorsementKey held": r"^PATCH .*/endorsementkeys/",
    "Approved": r"/certificatesigningrequests/[^/]+/approval$",
    "certificate": r"/certificatesigningrequests/[^/]+/status$",
}
"""Writes of the signer in their order."""
NOT_IN: Final = {
    "join": set[str](),
    "renewal": {"EndorsementKey created"},
    "serving": {"EndorsementKey created"},
}
CASES: Final = [
    (exchange, write) for exchange, without in NOT_IN.items() for write in WRITES.keys() - without
]


@dataclass(slots=True)
class Setup:
    """The present signer, and a node that has joined."""

    relayed: Relayed
    machines: Machines
    directory: Path
    signer: Signer = field(init=False)
    joined: Node = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.next_signer().start()
        self.joined = self.power_on()
        assert self.joined.call().status == 0

    def next_signer(self) -> Signer:
        """Make another signer the present one."""
        self.count += 1
        # It would first wait whether the holder of this Lease still renews it.
        empty(self.relayed.fleet.management.admin, LEASES)
        self.signer = self.relayed.signer(self.directory / str(self.count))
        return self.signer

    def power_on(self) -> Node:
        """Make a machine that may join."""
        node = self.machines.power_on(self.relayed.fleet.first, settings=PATIENCE)
        self.machines.register(node, Machine(node.name, addresses=[("Hostname", node.name)]))
        return node

    def begin(self, exchange: str) -> tuple[Node, "Popen[str]"]:
        """Start an exchange."""
        if exchange == "join":
            node = self.power_on()
            return node, node.start()
        node = self.joined
        if exchange == "renewal":
            return node, node.start("renew", "--kubeconfig", str(node.kubeconfig()))
        (node.state / "serving/credential.pem").unlink(missing_ok=True)  # it would not be due
        return node, node.start("serving", "--dns", node.name)

    def require_complete(self, node: Node) -> None:
        """Require that the claim names the node's certificate, and that nothing is denied."""
        admin = self.relayed.fleet.first.workload.admin
        require_claim(node, self.relayed.fleet)
        certificate = credential_id(node.call().certificate.encode())
        recorded = csrs.claim(node, self.relayed.fleet.management.admin)["credentialIDs"]
        assert certificate in recorded
        for answer in csrs.answers(node):
            assert set(csrs.conditions(admin, answer["metadata"]["name"])) == {"Approved"}


@pytest.fixture(scope="module")
def setup(
    relayed: Relayed, vendor: TrustDomain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Setup]:
    """Run a signer, and join a node."""
    directory = tmp_path_factory.mktemp("faults")
    with ExitStack() as stack:
        setup = Setup(relayed, Machines(relayed.fleet, vendor, directory, stack), directory)
        yield setup
        relayed.arm(None)
        setup.signer.stop()


@pytest.mark.parametrize(("exchange", "write"), sorted(CASES))
def test_write_whose_connection_is_cut_is_made_again(
    setup: Setup, exchange: str, write: str
) -> None:
    """First the API server does not receive it, then its answer is lost."""
    relayed, only = setup.relayed, WRITES[write]
    after = Fault(at_write=1, before=False, happen=lambda: relayed.arm(None), only=only)
    before = Fault(at_write=1, before=True, happen=lambda: relayed.arm(after), only=only)
    relayed.arm(before)
    node, call = setup.begin(exchange)
    assert finished(call).status == 0
    assert after.happened
    setup.require_complete(node)


@pytest.mark.parametrize(("exchange", "write"), sorted(case for case in CASES if case[0] != "join"))
def test_signers_that_are_killed_at_a_write_are_replaced(
    setup: Setup, exchange: str, write: str
) -> None:
    """The first one is killed before the write, and the second one after it."""
    relayed, only = setup.relayed, WRITES[write]
    before = Fault(at_write=1, before=True, happen=setup.signer.kill, only=only)
    relayed.arm(before)
    node, call = setup.begin(exchange)
    wait_until(lambda: before.happened, what=f"the first {write}", seconds=SECONDS)
    second = setup.next_signer()
    after = Fault(at_write=1, before=False, happen=second.kill, only=only)
    relayed.arm(after)
    second.start()
    wait_until(lambda: after.happened, what=f"the second {write}", seconds=SECONDS)
    relayed.arm(None)
    setup.next_signer().start()
    assert finished(call).status == 0
    setup.require_complete(node)


def test_signer_that_is_stopped_and_continued_changes_nothing_that_another_completed(
    setup: Setup,
) -> None:
    """Its further writes come after those of the replica that took over, and after a renewal."""
    relayed, late = setup.relayed, setup.signer

    def stop() -> None:
        os.kill(late.pid, signal.SIGSTOP)

    fault = Fault(at_write=1, before=False, happen=stop, only=WRITES["AttestedNode"])
    relayed.arm(fault)
    node, call = setup.begin("renewal")
    wait_until(lambda: fault.happened, what="the claim is written", seconds=SECONDS)
    relayed.arm(None)
    try:
        setup.next_signer().start()
        assert finished(call).status == 0
        renewal = setup.begin("renewal")[1]
        assert finished(renewal).status == 0
    finally:
        os.kill(late.pid, signal.SIGCONT)
    other = setup.signer
    wait_until(
        lambda: late.metric("node_attestation_replicas") == 2,
        what="it shares again",
        seconds=SECONDS,
    )
    setup.require_complete(node)
    late.stop()
    setup.require_complete(node)
    assert not [line for line in other.lines if line["level"] == "error"]
