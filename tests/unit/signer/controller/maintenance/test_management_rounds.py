"""Rounds of maintenance of the management cluster."""

from typing import cast

from common.errors import ApiServerUnavailable
from signer.controller.maintenance.management_rounds import Cleanup, ManagementRounds
from signer.inventory.replica_records.challenge_keys import ChallengeKeyStore


class Steps:
    """The steps of a round: the first one fails."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def rotate(self) -> None:
        self.done.append("rotate")
        raise ApiServerUnavailable("away")

    def delete_stale_claims(self) -> None:
        self.done.append("claims")

    def delete_unclaimed_keys(self) -> None:
        self.done.append("keys")

    def delete_authority_leases(self) -> None:
        self.done.append("authorities")

    def delete_opt_in_leases(self) -> None:
        self.done.append("opt-ins")


def test_a_failed_step_of_the_maintenance_does_not_stop_the_next_one() -> None:
    steps = Steps()
    rounds = ManagementRounds(
        cast(ChallengeKeyStore, steps), cast(Cleanup, steps), is_clock_tolerable=lambda: True
    )
    assert rounds.pause() == 60
    rounds.run()
    assert steps.done == ["rotate", "claims", "keys", "authorities", "opt-ins"]
    assert rounds.pause() == 5


def test_a_wrong_clock_rotates_no_key_and_deletes_nothing() -> None:
    """Two replicas whose clocks differ by years would rotate the challenge key in turns."""
    steps = Steps()
    ManagementRounds(
        cast(ChallengeKeyStore, steps), cast(Cleanup, steps), is_clock_tolerable=lambda: False
    ).run()
    assert steps.done == []
