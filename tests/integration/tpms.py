"""Software TPMs and deadlines for the tests of the TPM seam, and what is left in a TPM."""

import time
from dataclasses import dataclass, field

from tests.harness.tpm import SoftwareTpm


@dataclass(frozen=True)
class Seconds:
    """A deadline: this long after it was made."""

    seconds: float = 30.0
    start: float = field(default_factory=time.monotonic)

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return self.start + self.seconds - time.monotonic()


def left_in(tpm: SoftwareTpm) -> list[str]:
    """Return the transient keys and the sessions that are in the TPM."""
    kinds = ("handles-transient", "handles-loaded-session", "handles-saved-session")
    return [line for kind in kinds for line in tpm.run("getcap", kind).splitlines()]
