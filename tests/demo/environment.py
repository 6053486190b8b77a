"""Where the demo takes place."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.demo.narration import Narrator
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.node import Node
from tests.harness.tpm import SoftwareTpm, TrustDomain


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, and how machines are added to it."""

    story: Narrator
    fleet: Fleet
    folder: Path
    vendor: TrustDomain
    stack: ExitStack

    def boot_machine(self, tenant: WorkloadTenant, name: str, *, seed: str) -> Node:
        """Make a machine with a TPM of the vendor's, and give it a fresh bootstrap token."""
        tpm = self.stack.enter_context(SoftwareTpm(self.vendor, seed=seed))
        node = Node(tenant, name, tpm, self.folder / seed)
        node.give_token(tenant.workload.bootstrap_token())
        return node


def require(held: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Fail the demo when something did not happen as it is told."""
    if not held:
        raise AssertionError(otherwise)
