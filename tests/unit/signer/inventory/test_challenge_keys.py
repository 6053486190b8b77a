"""The master keys: made once, shared, rotated, and never made up over what somebody damaged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from common.errors import ApiServerUnavailable
from signer.errors import ChallengeKeyUnavailable
from signer.inventory.challenge_keys import (
    MIN_REFRESH_INTERVAL,
    PREVIOUS_KEY_TTL,
    ROTATION_PERIOD,
    SECRET_NAME,
    ChallengeKeyStore,
)
from signer.model import ChallengeKeys
from tests.fakes.secrets import FakeSecrets

HOME = "node-attestation-system"


@dataclass(slots=True)
class Replicas:
    """Replicas of the signer that share a Secret and a clock."""

    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    now: datetime = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    random: Callable[[int], bytes] = field(default_factory=lambda: Random(7).randbytes)

    def replica(self) -> ChallengeKeyStore:
        return ChallengeKeyStore(self.secrets, HOME, now=lambda: self.now, random=self.random)

    @property
    def data(self) -> dict[str, bytes]:
        return dict(self.secrets.stored[HOME, SECRET_NAME].data)


def test_a_key_is_made_when_there_is_none() -> None:
    replicas = Replicas()
    masters = replicas.replica().cached()
    assert len(masters.current) == 32
    assert masters.previous is None
    assert replicas.data["current"] == masters.current


def test_the_secret_is_read_once_until_it_has_to_be() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.cached()
    keys.cached()
    assert replicas.secrets.reads == 1


def test_two_replicas_that_start_at_once_share_a_key() -> None:
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    replicas.secrets.interrupt = lambda: _ignored(second.cached())
    assert first.cached() == second.cached()


def _ignored(_: object) -> None:
    pass


def test_every_key_is_another() -> None:
    """A nonce that is the same everywhere is none (Keylime CVE-2026-6420)."""
    made = {Replicas(random=Random(seed).randbytes).replica().cached().current for seed in "abc"}
    assert len(made) == 3


def test_a_live_reading_sees_what_another_replica_wrote() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    old = keys.cached().current
    replicas.now += ROTATION_PERIOD
    replicas.replica().rotate()
    assert keys.cached().current == old
    live = keys.refresh()
    assert live.current != old
    assert live.previous == old
    assert keys.cached() == live


def test_live_readings_are_limited_in_rate() -> None:
    """Anybody can file answers under keys that nobody knows."""
    replicas = Replicas()
    keys = replicas.replica()
    for _ in range(100):
        keys.refresh()
    assert replicas.secrets.reads == 1
    replicas.now += MIN_REFRESH_INTERVAL
    keys.refresh()
    keys.refresh()
    assert replicas.secrets.reads == 2


def test_live_readings_that_fail_are_limited_in_rate() -> None:
    """An API server in trouble is not asked the more for it."""
    replicas = Replicas()
    keys = replicas.replica()
    known = keys.cached()
    replicas.secrets.away = True
    replicas.now += MIN_REFRESH_INTERVAL
    with pytest.raises(ApiServerUnavailable):
        keys.refresh()
    for _ in range(100):
        assert keys.refresh() == known
    assert replicas.secrets.reads == 2


def test_nobody_waits_for_a_reading_that_is_under_way() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    known = keys.cached()
    replicas.now += MIN_REFRESH_INTERVAL
    others: list[ChallengeKeys] = []

    def meanwhile() -> None:
        replicas.now += MIN_REFRESH_INTERVAL
        others.extend((keys.cached(), keys.refresh()))

    replicas.secrets.meanwhile = meanwhile
    assert keys.refresh() == known
    assert others == [known, known]
    assert replicas.secrets.reads == 2


def test_a_clock_that_went_back_does_not_stop_live_readings() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.refresh()
    replicas.now -= timedelta(hours=1)
    keys.refresh()
    assert replicas.secrets.reads == 2


def test_an_old_key_is_rotated_and_counts_for_a_while() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    old = keys.cached().current
    replicas.now += ROTATION_PERIOD - timedelta(seconds=1)
    keys.rotate()
    assert keys.cached().current == old
    replicas.now += timedelta(seconds=1)
    keys.rotate()
    new = keys.cached()
    assert new.current != old
    assert new.previous == old
    replicas.now += PREVIOUS_KEY_TTL - timedelta(seconds=1)
    keys.rotate()
    assert keys.cached().previous == old


def test_the_previous_key_is_destroyed() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.cached()
    replicas.now += ROTATION_PERIOD
    keys.rotate()
    replicas.now += PREVIOUS_KEY_TTL
    assert keys.cached().previous is None
    keys.rotate()
    assert set(replicas.data) == {"current", "since"}


def test_two_replicas_rotate_once() -> None:
    """Rotating twice would destroy the key that challenges in flight were made under."""
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    old = first.cached().current
    replicas.now += ROTATION_PERIOD
    replicas.secrets.interrupt = second.rotate
    first.rotate()
    assert first.cached() == second.cached()
    assert first.cached().previous == old


@pytest.mark.parametrize(
    "change",
    [
        {"current": b"short"},
        {"current": b""},
        {"previous": b"short"},
        {"since": b"yesterday"},
        {"since": b"2026-11-21T09:30:00"},
        {"since": b"\xff"},
    ],
)
def test_a_damaged_secret_is_neither_used_nor_replaced(change: dict[str, bytes]) -> None:
    replicas = Replicas()
    replicas.replica().cached()
    damaged = replicas.secrets.put(HOME, SECRET_NAME, {**replicas.data, **change})
    keys = replicas.replica()
    for use in (keys.cached, keys.refresh, keys.rotate):
        with pytest.raises(ChallengeKeyUnavailable):
            use()
    assert replicas.secrets.stored[HOME, SECRET_NAME] == damaged


def test_a_secret_without_a_key_is_damaged_too() -> None:
    replicas = Replicas()
    replicas.secrets.put(HOME, SECRET_NAME, {})
    with pytest.raises(ChallengeKeyUnavailable):
        replicas.replica().cached()


def test_keys_are_never_shown() -> None:
    replicas = Replicas()
    masters = replicas.replica().cached()
    shown = repr(masters) + repr(replicas.secrets.stored)
    assert masters.current.hex() not in shown
    assert repr(masters.current) not in shown
