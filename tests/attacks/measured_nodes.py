"""Scenarios in which a node joins with an event log."""

from dataclasses import replace

from signer.policy.policy import EventLogRules
from tests.builders.event_logs import (
    Measured,
    application,
    extended,
    firmware,
    log_of,
)
from tests.builders.scenario import Scenario

SELECTION = {"sha256": tuple(range(8))}


SHIM, KERNEL, ROOTKIT = application(b"shim"), application(b"kernel"), application(b"rootkit")


def digests(*events: Measured) -> frozenset[bytes]:
    """Return the digests as policies list them."""
    return frozenset(event.digest("sha256") for event in events)


RULES = EventLogRules(
    secure_boot=True,
    platform_keys=digests(firmware()[2]),
    signature_databases=digests(firmware()[4]),
    boot_loaders=digests(SHIM, KERNEL),
)


def measured() -> Scenario:
    """Join under a policy that needs the event log."""
    scenario = Scenario(event_log=log_of(firmware()))
    scenario.policy = replace(scenario.policy, event_log=RULES)
    scenario.pcrs = extended(firmware(), SELECTION)
    return scenario
