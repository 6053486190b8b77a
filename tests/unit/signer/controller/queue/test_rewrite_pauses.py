"""Changes by others are corrected after pauses that grow; the signer's own writes have none."""

from dataclasses import replace

from signer.controller.queue.rewrite_pauses import RewritePauses
from signer.kinds.csr import Csr
from tests.builders.scenario import Scenario

CSR = Scenario().offer_csr()


def version(number: int) -> Csr:
    return replace(CSR, resource_version=str(number))


def test_own_writes_have_no_pause() -> None:
    """A CSR that waits gets a new reason whenever what it waits for changes."""
    pauses = RewritePauses()
    for number in range(20):
        assert pauses.remaining(version(number), 0.0) == 0
        pauses.note_write(version(number), str(number + 1), 0.0)
    assert pauses.remaining(version(20), 0.0) == 0


def test_write_that_conflicts_counts_as_a_correction() -> None:
    """Somebody who changes the CSR all the time lets each write of this signer fail."""
    pauses = RewritePauses()
    for number in (1, 2, 3):
        pauses.note_write(version(number), None, 0.0)
    assert pauses.remaining(version(4), 0.0) == 4
