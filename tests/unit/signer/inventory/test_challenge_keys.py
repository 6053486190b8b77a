"""The master keys: made once, shared, rotated, and never made up over what somebody damaged."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from common.errors import ApiServerUnavailable, MasterKeyUnavailable
from signer.inventory.challenge_keys import GRACE, LIVE_REST, ROTATION, SECRET_NAME, MasterKeys
from signer.issue.challenge import Masters
from tests.fakes.secrets import FakeSecrets

HOME = "node-attestation-system"


@dataclass(slots=True)
class Replicas:
    """Replicas of the signer that share a Secret and a clock."""

    secrets: FakeSecrets = field(default_factory=FakeSecrets)
    now: datetime = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    random: Callable[[int], bytes] = field(default_factory=lambda: Random(7).randbytes)

    def replica(self) -> MasterKeys:
        return MasterKeys(self.secrets, HOME, now=lambda: self.now, random=self.random)

    @property
    def data(self) -> dict[str, bytes]:
        return dict(self.secrets.stored[HOME, SECRET_NAME].data)


def test_a_key_is_made_when_there_is_none() -> None:
    replicas = Replicas()
    masters = replicas.replica().masters()
    assert len(masters.current) == 32
    assert masters.previous is None
    assert replicas.data["current"] == masters.current


def test_the_secret_is_read_once_until_it_has_to_be() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.masters()
    keys.masters()
    assert replicas.secrets.reads == 1


def test_two_replicas_that_start_at_once_share_a_key() -> None:
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    replicas.secrets.interrupt = lambda: _ignored(second.masters())
    assert first.masters() == second.masters()


def _ignored(_: object) -> None:
    pass


def test_every_key_is_another() -> None:
    """A nonce that is the same everywhere is none (Keylime CVE-2026-6420)."""
    made = {Replicas(random=Random(seed).randbytes).replica().masters().current for seed in "abc"}
    assert len(made) == 3


def test_a_live_reading_sees_what_another_replica_wrote() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    old = keys.masters().current
    replicas.now += ROTATION
    replicas.replica().tend()
    assert keys.masters().current == old
    live = keys.read_live()
    assert live.current != old
    assert live.previous == old
    assert keys.masters() == live


def test_live_readings_are_limited_in_rate() -> None:
    """Anybody can file answers under keys that nobody knows."""
    replicas = Replicas()
    keys = replicas.replica()
    for _ in range(100):
        keys.read_live()
    assert replicas.secrets.reads == 1
    replicas.now += LIVE_REST
    keys.read_live()
    keys.read_live()
    assert replicas.secrets.reads == 2


def test_live_readings_that_fail_are_limited_in_rate() -> None:
    """An API server in trouble is not asked the more for it."""
    replicas = Replicas()
    keys = replicas.replica()
    known = keys.masters()
    replicas.secrets.away = True
    replicas.now += LIVE_REST
    with pytest.raises(ApiServerUnavailable):
        keys.read_live()
    for _ in range(100):
        assert keys.read_live() == known
    assert replicas.secrets.reads == 2


def test_nobody_waits_for_a_reading_that_is_under_way() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    known = keys.masters()
    replicas.now += LIVE_REST
    others: list[Masters] = []

    def meanwhile() -> None:
        replicas.now += LIVE_REST
        others.extend((keys.masters(), keys.read_live()))

    replicas.secrets.meanwhile = meanwhile
    assert keys.read_live() == known
    assert others == [known, known]
    assert replicas.secrets.reads == 2


def test_a_clock_that_went_back_does_not_stop_live_readings() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.read_live()
    replicas.now -= timedelta(hours=1)
    keys.read_live()
    assert replicas.secrets.reads == 2


def test_an_old_key_is_rotated_and_counts_for_a_while() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    old = keys.masters().current
    replicas.now += ROTATION - timedelta(seconds=1)
    keys.tend()
    assert keys.masters().current == old
    replicas.now += timedelta(seconds=1)
    keys.tend()
    new = keys.masters()
    assert new.current != old
    assert new.previous == old
    replicas.now += GRACE - timedelta(seconds=1)
    keys.tend()
    assert keys.masters().previous == old


def test_the_previous_key_is_destroyed() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.masters()
    replicas.now += ROTATION
    keys.tend()
    replicas.now += GRACE
    assert keys.masters().previous is None
    keys.tend()
    assert set(replicas.data) == {"current", "since"}


def test_two_replicas_rotate_once() -> None:
    """Rotating twice would destroy the key that challenges in flight were made under."""
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    old = first.masters().current
    replicas.now += ROTATION
    replicas.secrets.interrupt = second.tend
    first.tend()
    assert first.masters() == second.masters()
    assert first.masters().previous == old


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
    replicas.replica().masters()
    damaged = replicas.secrets.put(HOME, SECRET_NAME, {**replicas.data, **change})
    keys = replicas.replica()
    for use in (keys.masters, keys.read_live, keys.tend):
        with pytest.raises(MasterKeyUnavailable):
            use()
    assert replicas.secrets.stored[HOME, SECRET_NAME] == damaged


def test_a_secret_without_a_key_is_damaged_too() -> None:
    replicas = Replicas()
    replicas.secrets.put(HOME, SECRET_NAME, {})
    with pytest.raises(MasterKeyUnavailable):
        replicas.replica().masters()


def test_keys_are_never_shown() -> None:
    replicas = Replicas()
    masters = replicas.replica().masters()
    shown = repr(masters) + repr(replicas.secrets.stored)
    assert masters.current.hex() not in shown
    assert repr(masters.current) not in shown
