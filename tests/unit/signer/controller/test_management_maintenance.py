"""Rounds of maintenance of the management cluster."""

from threading import Event
from typing import cast

import pytest

from common.errors import ApiServerUnavailable
from signer.controller import management_maintenance
from signer.controller.claim_cleanup import ClaimCleanup
from signer.controller.management_maintenance import maintain_management
from signer.inventory.challenge_keys import ChallengeKeyStore


class Steps:
    """The steps of a round: the first one fails, and the last one ends the rounds."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stop = Event()

    def rotate(self) -> None:
        self.done.append("rotate")
        raise ApiServerUnavailable("away")

    def delete_stale_claims(self) -> None:
        self.done.append("claims")

    def delete_unclaimed_keys(self) -> None:
        self.done.append("keys")
        self.stop.set()


def test_a_failed_step_of_the_maintenance_does_not_stop_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(management_maintenance, "_INTERVAL", 0.0)
    steps = Steps()
    maintain_management(cast(ChallengeKeyStore, steps), cast(ClaimCleanup, steps), steps.stop)
    assert steps.done == ["rotate", "claims", "keys"]
