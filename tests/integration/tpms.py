"""Software TPMs and deadlines for the tests of the TPM seam, and what is left in a TPM."""

from authenticator.clock import SystemClock
from authenticator.model import Deadline
from tests.harness.tpm import SoftwareTpm


def seconds(count: float = 30.0) -> Deadline:
    """Return a deadline that many seconds from now."""
    return Deadline(SystemClock(), count)


def left_in(tpm: SoftwareTpm) -> list[str]:
    """Return the transient keys and the sessions that are in the TPM."""
    kinds = ("handles-transient", "handles-loaded-session", "handles-saved-session")
    return [line for kind in kinds for line in tpm.run("getcap", kind).splitlines()]
