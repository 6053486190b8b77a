"""Nodes whose firmware and kernel a test chooses, with the event log of the boot."""

from collections.abc import Mapping

from tests.builders.event_logs import extended, firmware, log_of
from tests.harness.node import Node

PCRS = (0, 4, 7)


def values(version: str) -> Mapping[str, str]:
    """Return the PCRs after a boot with this version of the firmware."""
    booted = extended(firmware(version=version), {"sha256": PCRS})["sha256"]
    return {str(index): value.hex() for index, value in booted.items()}


def boot(node: Node, version: str, *, kernel: bytes = b"kernel") -> None:
    """Boot a node into this firmware and this kernel."""
    events = firmware(version=version, kernel=kernel)
    node.tpm.boot([(e.pcr, e.data if e.measured is None else e.measured) for e in events])
    path = node.directory / "binary_bios_measurements"
    path.write_bytes(log_of(events))
    node.settings = {"eventLogFile": str(path)}


def renew(node: Node) -> str:
    """Let a node renew its certificate, and return its complaint."""
    return node.call("renew", "--kubeconfig", str(node.kubeconfig())).complaint
