"""Q4, measured boot, on real parts: firmware's events in a TPM, and its log from the plugin."""

from collections.abc import Iterator, Sequence

import pytest
import yaml

from tests.builders.event_logs import Measured, application, firmware, log_of
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import Signer, of_cluster
from tests.integration.operator_calls import Operator, cluster_of

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
    """Allow one measured boot in one cluster, and any boot with Secure Boot in the other."""
    specs = (
        of_cluster(fleet.first, eventLog=RULES),
        of_cluster(fleet.second, eventLog={"secureBoot": True}),
    )
    with signer.with_policies(*specs) as running:
        yield running


def boot(node: Node, events: Sequence[Measured], logged: Sequence[Measured] | None = None) -> None:
    """Boot a node with these events. Its firmware logs the same events, or `logged` instead."""
    node.tpm.boot([(e.pcr, e.data if e.measured is None else e.measured) for e in events])
    path = node.directory / "binary_bios_measurements"
    path.write_bytes(log_of(events if logged is None else logged))
    node.settings = {"eventLogFile": str(path)}


def refusal(node: Node) -> str:
    call = node.call()
    assert call.status == 1
    return call.complaint


def test_allowed_boot_is_accepted(machines: Machines) -> None:
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
def test_different_boot_is_refused(
    machines: Machines, events: Sequence[Measured], message: str
) -> None:
    node = machines.registered()
    boot(node, events)
    assert f"EventLogPolicyMismatch: {message}" in refusal(node)


def test_log_of_another_boot_is_refused(machines: Machines) -> None:
    """The log shows a boot that the policy allows, but does not reproduce the quoted PCRs."""
    node = machines.registered()
    boot(node, firmware(secure_boot=False), logged=GOOD)
    assert "EventLogMismatch" in refusal(node)


def test_a_measured_boot_is_accepted(machines: Machines, fleet: Fleet) -> None:
    """From a policy with few requirements to one that requires this boot."""
    node = machines.registered(fleet.second)
    boot(node, GOOD)
    assert node.call().status == 0
    operator = Operator(fleet, fleet.management.admin_config)
    name = f"{cluster_of(fleet.second)}/{node.name}"
    call = operator.call("pcrs", "accept", name, "--dry-run=client")
    assert call.status == 0, call
    assert yaml.safe_load(call.output)["spec"]["eventLog"] == RULES
