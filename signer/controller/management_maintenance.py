"""Rounds of maintenance of the management cluster: challenge keys, claims and endorsement keys."""

from threading import Event
from typing import Final

from signer.controller.claim_cleanup import ClaimCleanup
from signer.controller.steps import run_step
from signer.inventory.challenge_keys import ChallengeKeyStore

_INTERVAL: Final = 60.0
_RETRY_INTERVAL: Final = 5.0


def maintain_management(
    challenge_keys: ChallengeKeyStore, cleanup: ClaimCleanup, stop: Event
) -> None:
    """Run rounds until `stop` is set; a step that fails does not stop the others."""
    steps = (
        (challenge_keys.rotate, "rotation of the challenge keys"),
        (cleanup.delete_stale_claims, "deletion of stale claims"),
        (cleanup.delete_unclaimed_keys, "deletion of unclaimed keys"),
    )
    succeeded = True
    while not stop.wait(_INTERVAL if succeeded else _RETRY_INTERVAL):
        results = [run_step(step, name) for step, name in steps]
        succeeded = all(results)
