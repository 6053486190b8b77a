"""The challenge keys: created once, shared, rotated, and never replaced when damaged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from common.errors import ApiServerUnavailable
from signer.errors import ChallengeKeyUnavailable
from signer.inventory.replica_records.challenge_keys import (
    MIN_REFRESH_INTERVAL,
    PREVIOUS_KEY_TTL,
    ROTATION_PERIOD,
    SECRET_NAME,
    ChallengeKeyStore,
)
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import Request
from signer.seams import ChallengeKeys
from tests.builders.kube_objects import secret
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

HOME = "node-attestation-system"
SECRETS = f"/api/v1/namespaces/{HOME}/secrets"


@dataclass(slots=True)
class Replicas:
    """Replicas of the signer that share a Secret and a clock."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    now: datetime = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    random: Callable[[int], bytes] = field(default_factory=lambda: Random(7).randbytes)

    @property
    def secrets(self) -> SecretClient:
        return SecretClient(FakeClient(self.cluster))

    def replica(self) -> ChallengeKeyStore:
        return ChallengeKeyStore(self.secrets, HOME, now=lambda: self.now, random=self.random)

    @property
    def data(self) -> dict[str, bytes]:
        secret = self.secrets.read(HOME, SECRET_NAME)
        assert secret is not None
        return dict(secret.data)

    def put(self, data: Mapping[str, bytes]) -> None:
        self.cluster.put(SECRETS, secret(SECRET_NAME, data))


def test_key_is_created_when_the_secret_is_absent() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    challenge_keys = keys.cached()
    assert len(challenge_keys.current) == 32
    assert challenge_keys.previous is None
    assert keys.cached() == challenge_keys
    assert len(replicas.cluster.reads) == 1, "cached keys are read once"
    assert replicas.data["current"] == challenge_keys.current


def test_replicas_that_start_together_share_a_key() -> None:
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    replicas.cluster.intercept(lambda _: _ignored(second.cached()), "POST")
    assert first.cached() == second.cached()


def _ignored(_: object) -> None:
    pass


def test_every_installation_has_another_key() -> None:
    """A nonce that is equal everywhere proves nothing (Keylime CVE-2026-6420)."""
    keys = {Replicas(random=Random(seed).randbytes).replica().cached().current for seed in "abc"}
    assert len(keys) == 3


def test_refresh_reads_the_key_of_another_replica() -> None:
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


def test_refreshes_are_rate_limited() -> None:
    """Any requester can file answers under key IDs that do not exist."""
    replicas = Replicas()
    keys = replicas.replica()
    for _ in range(100):
        keys.refresh()
    assert len(replicas.cluster.reads) == 1
    replicas.now += MIN_REFRESH_INTERVAL
    keys.refresh()
    keys.refresh()
    assert len(replicas.cluster.reads) == 2


def test_refreshes_that_fail_are_rate_limited() -> None:
    """An API server in trouble must not get more requests for that."""
    replicas = Replicas()
    keys = replicas.replica()
    before = keys.cached()
    replicas.cluster.intercept(ApiServerUnavailable("away"))
    replicas.now += MIN_REFRESH_INTERVAL
    with pytest.raises(ApiServerUnavailable):
        keys.refresh()
    for _ in range(100):
        assert keys.refresh() == before
    assert len(replicas.cluster.reads) == 2


def test_refresh_in_progress_blocks_no_other_thread() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    before = keys.cached()
    replicas.now += MIN_REFRESH_INTERVAL
    others: list[ChallengeKeys] = []

    def meanwhile(_: Request) -> None:
        replicas.now += MIN_REFRESH_INTERVAL
        others.extend((keys.cached(), keys.refresh()))

    replicas.cluster.intercept(meanwhile)
    assert keys.refresh() == before
    assert others == [before, before]
    assert len(replicas.cluster.reads) == 2


def test_first_read_in_progress_blocks_no_other_thread() -> None:
    """All 64 workers waited for the one whose request to the management cluster hung."""
    replicas = Replicas()
    keys, blocked = replicas.replica(), list[str]()

    def meanwhile(_: Request) -> None:
        with pytest.raises(ChallengeKeyUnavailable, match="has not been read") as caught:
            keys.cached()
        blocked.append(caught.value.message)

    replicas.cluster.intercept(meanwhile)
    keys.cached()
    assert blocked


def test_clock_that_went_back_does_not_stop_refreshes() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.refresh()
    replicas.now -= timedelta(hours=1)
    keys.refresh()
    assert len(replicas.cluster.reads) == 2


def test_rotated_key_stays_valid_for_a_while() -> None:
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


def test_previous_key_is_deleted_after_its_ttl() -> None:
    replicas = Replicas()
    keys = replicas.replica()
    keys.cached()
    replicas.now += ROTATION_PERIOD
    keys.rotate()
    replicas.now += PREVIOUS_KEY_TTL
    assert keys.cached().previous is None
    keys.rotate()
    assert set(replicas.data) == {"current", "since"}


def test_clock_that_was_years_ahead_does_not_stop_the_rotation() -> None:
    """The key from the future would not have been rotated for ten years."""
    replicas = Replicas()
    now = replicas.now
    replicas.now += timedelta(days=3650)
    keys = replicas.replica()
    old = keys.cached().current
    replicas.now = now
    keys.rotate()
    new = keys.cached()
    assert (new.current != old, new.previous) == (True, old)
    keys.rotate()
    assert keys.cached() == new


def test_replicas_whose_clocks_differ_by_minutes_do_not_rotate_in_turns() -> None:
    """Each rotation ends the exchanges under the key before the previous one."""
    replicas = Replicas()
    keys = replicas.replica()
    before = keys.cached()
    replicas.now -= timedelta(minutes=8)
    keys.rotate()
    assert keys.cached() == before


def test_two_replicas_rotate_the_key_once() -> None:
    """Rotating twice would delete the key of challenges that are not answered yet."""
    replicas = Replicas()
    first, second = replicas.replica(), replicas.replica()
    old = first.cached().current
    replicas.now += ROTATION_PERIOD
    replicas.cluster.intercept(lambda _: second.rotate(), "PUT")
    first.rotate()
    assert first.cached() == second.cached()
    assert first.cached().previous == old


@pytest.mark.parametrize(
    "change",
    [
        None,
        {"current": b"short"},
        {"current": b""},
        {"previous": b"short"},
        {"since": b"yesterday"},
        {"since": b"2026-11-21T09:30:00"},
        {"since": b"\xff"},
    ],
)
def test_damaged_secret_is_neither_used_nor_replaced(change: dict[str, bytes] | None) -> None:
    """`None`: it is empty."""
    replicas = Replicas()
    replicas.replica().cached()
    replicas.put({} if change is None else {**replicas.data, **change})
    damaged = dict(replicas.cluster.objects)
    keys = replicas.replica()
    for use in (keys.cached, keys.refresh, keys.rotate):
        with pytest.raises(ChallengeKeyUnavailable):
            use()
    assert replicas.cluster.objects == damaged


def test_repr_shows_no_challenge_key() -> None:
    replicas = Replicas()
    challenge_keys = replicas.replica().cached()
    shown = repr(challenge_keys) + repr(replicas.secrets.read(HOME, SECRET_NAME))
    assert challenge_keys.current.hex() not in shown
    assert repr(challenge_keys.current) not in shown
