"""Q4, measured boot, on real parts: firmware's events in a TPM, and its log from the plugin."""

from collections.abc import Iterator, Sequence

import pytest

from tests.builders.event_logs import Measured, application, firmware, log_of
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import Signer, of_cluster
from tests.integration import audit_log

GOOD = firmware()
PLATFORM_KEY, DATABASE = (event.digest("sha256").hex() for event in (GOOD[2], GOOD[4]))
LOADERS = sorted(application(image).digest("sha256").hex() for image in (b"shim", b"kernel"))
RULES = {
    "secureBoot": True,
    "platformKeys": [PLATFORM_KEY],
    "signatureDatabases": [DATABASE],
    "bootLoaders": LOADERS,
}


@pytest.fixture(scope="module", autouse=True)
def measuring(signer: Signer, fleet: Fleet) -> Iterator[Signer]:
    """Ask for one measured boot in the one cluster, and for any with Secure Boot in the other."""
    specs = (
        of_cluster(fleet.first, eventLog=RULES),
        of_cluster(fleet.second, eventLog={"secureBoot": True}),
    )
    with signer.with_policies(*specs) as running:
        yield running


def boot(node: Node, events: Sequence[Measured], told: Sequence[Measured] | None = None) -> None:
    """Boot a node with these events, and let its firmware tell them, or others, in its log."""
    node.tpm.boot([(e.pcr, e.data if e.measured is None else e.measured) for e in events])
    path = node.directory / "binary_bios_measurements"
    path.write_bytes(log_of(events if told is None else told))
    node.settings = {"eventLogFile": str(path)}


def refusal(node: Node) -> str:
    call = node.call()
    assert call.status == 1
    return call.complaint


def test_a_boot_as_it_should_be(machines: Machines) -> None:
    node = machines.registered()
    boot(node, GOOD)
    assert node.call().status == 0


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (firmware(secure_boot=False), "Secure Boot is off"),
        ([*GOOD, application(b"rescue system")], "the policy does not allow this boot loader"),
    ],
    ids=["Secure Boot off", "another boot loader"],
)
def test_another_boot(machines: Machines, events: Sequence[Measured], message: str) -> None:
    node = machines.registered()
    boot(node, events)
    assert f"EventLogPolicyMismatch: {message}" in refusal(node)


def test_the_log_of_another_boot(machines: Machines) -> None:
    """It shows what the policy allows, and does not lead to what was quoted."""
    node = machines.registered()
    boot(node, firmware(secure_boot=False), told=GOOD)
    assert "EventLogMismatch" in refusal(node)


def test_no_log(machines: Machines) -> None:
    node = machines.registered(settings={"eventLogFile": "/nonexistent"})
    assert "EventLogMissing" in refusal(node)


def test_a_measured_boot_is_learned(machines: Machines, fleet: Fleet, measuring: Signer) -> None:
    """From a policy that asks for little to one that asks for this boot."""
    node = machines.registered(fleet.second)
    boot(node, GOOD)
    assert node.call().status == 0
    audit_log.logged(measuring, node, "issued")
    assert measuring.learn(fleet.second, node.name)["eventLog"] == RULES
