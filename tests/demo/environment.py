"""The running parts of the demo, and a method that adds machines."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.demo.narration import Narrator
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.tpm import SoftwareTpm, TrustDomain


@dataclass(frozen=True, slots=True)
class Stage:
    """The control planes, the TPM vendor and the output."""

    story: Narrator
    fleet: Fleet
    directory: Path
    vendor: TrustDomain
    stack: ExitStack

    def boot_machine(self, tenant: WorkloadTenant, name: str, *, seed: str) -> Node:
        """Create a machine with a TPM of the vendor and a new bootstrap token."""
        tpm = self.stack.enter_context(SoftwareTpm(self.vendor, seed=seed))
        node = Node(tenant, name, tpm, self.directory / seed)
        node.give_token(tenant.workload.bootstrap_token())
        return node


def require(condition: bool, message: str) -> None:  # noqa: FBT001 - reads as an assertion
    """Raise AssertionError with the message unless the condition is true. The demo then fails."""
    if not condition:
        raise AssertionError(message)
