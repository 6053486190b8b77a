"""Software TPMs and deadlines for tests of the TPM interface, and the objects left in a TPM."""

from authenticator.clock import SystemClock
from authenticator.model import Deadline
from tests.harness.tpm import SoftwareTpm


def seconds(count: float = 30.0) -> Deadline:
    """Return a deadline this many seconds from now."""
    return Deadline(SystemClock(), count)


def left_in(tpm: SoftwareTpm) -> list[str]:
    """Return the transient keys and sessions in the TPM."""
    kinds = ("handles-transient", "handles-loaded-session", "handles-saved-session")
    return [line for kind in kinds for line in tpm.run("getcap", kind).splitlines()]
