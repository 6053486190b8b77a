"""When a platform is queried, how long its answers are used, and what a tenant cannot exhaust."""

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Event, Semaphore
from typing import TypeVar

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import AttestationError
from common.public_keys import spki_sha256
from signer.errors import (
    PlatformAnswerPending,
    PlatformLocationNotAllowed,
    PlatformQueryFailed,
    PlatformUnavailable,
)
from signer.fairness.task_pool import TaskPool
from signer.platforms import queries
from signer.platforms.platform import Platform
from signer.platforms.queries import (
    BURST,
    FAILURE_SECONDS,
    KEY_SECONDS,
    MAX_CONCURRENT,
    OTHER_KEY_SECONDS,
    OVERDUE_SECONDS,
    QPS,
    PlatformQueries,
)
from signer.policy.policy import PlatformRules
from signer.seams import PlatformAnswer
from signer.verify.platform_keys import PlatformSource
from tests.fakes.platforms import RULES, FakePlatforms

T = TypeVar("T")
SECONDS = 30


def public_der(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


KEY = ec.generate_private_key(ec.SECP256R1())
NAME = spki_sha256(KEY.public_key()).hex()
STRANGER = "00" * 32
NOTHING = PlatformAnswer()


@dataclass(slots=True)
class FakePlatform:
    """A platform that answers at once: `metal://<location>/<instance>`."""

    keys: dict[str, Collection[bytes]] = field(default_factory=dict)
    error: Exception | None = None
    asked: list[str] = field(default_factory=list)

    def location(self, provider_id: str) -> str | None:
        scheme, _, path = provider_id.partition("://")
        if scheme != "metal":
            raise ValueError("not metal://<location>/<instance>")
        return path.partition("/")[0] or None

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        self.asked.append(provider_id)
        if self.error is not None:
            raise self.error
        return self.keys.get(provider_id, ())


class ManualPool(TaskPool):
    """Runs tasks when the test says so."""

    def __init__(self) -> None:
        super().__init__(1)
        self.tasks: list[tuple[str, Callable[[], object]]] = []

    def submit(self, tenant: str, function: Callable[[], T]) -> Future[T]:
        self.tasks.append((tenant, function))
        return Future()

    def run(self) -> int:
        """Run the tasks; return how many there were."""
        tasks, self.tasks = self.tasks, []
        for _, task in tasks:
            task()
        return len(tasks)


@dataclass(slots=True)
class Fixture:
    """Queries to one platform, and their clock."""

    platform: FakePlatform = field(default_factory=FakePlatform)
    pool: ManualPool = field(default_factory=ManualPool)
    seconds: float = 1000.0
    replicas: int = 1
    answered: list[str] = field(default_factory=list)
    queries: PlatformQueries = field(init=False)

    def __post_init__(self) -> None:
        self.queries = PlatformQueries(
            self.pool,
            lambda _: self.platform,
            answered=self.answered.append,
            replicas=lambda: self.replicas,
            monotonic=lambda: self.seconds,
        )

    def keys(
        self,
        instance: str = "1",
        *,
        expected: str = NAME,
        namespace: str = "team-a",
        rules: PlatformRules = RULES,
    ) -> frozenset[str]:
        provider_id = instance if "://" in instance else f"metal://rack-1/{instance}"
        answer = self.queries.answer(namespace, provider_id, rules, expected=expected)
        return answer.endorsement_keys

    def expect(
        self,
        error: type[AttestationError],
        instance: str = "1",
        *,
        expected: str = NAME,
        namespace: str = "team-a",
    ) -> None:
        with pytest.raises(error):
            self.keys(instance, expected=expected, namespace=namespace)

    def start(self, *instances: object, namespace: str = "team-a") -> int:
        """Ask for instances, one after the other; return how many queries start."""
        started = 0
        for instance in instances:
            self.expect(PlatformAnswerPending, str(instance), namespace=namespace)
            started += self.pool.run()
        return started

    def answer(
        self, instance: str = "1", *, expected: str = NAME, namespace: str = "team-a"
    ) -> None:
        """Ask for an instance, and let the platform answer."""
        self.expect(PlatformAnswerPending, instance, expected=expected, namespace=namespace)
        assert self.pool.run() == 1


def answered_queries() -> PlatformSource:
    """Return the real source after the answers about two instances."""
    fixture = fixture_with_key()
    for instance in ("1", "2"):
        fixture.answer(instance)
    return fixture.queries


def fake_source() -> PlatformSource:
    return FakePlatforms(names={"metal://rack-1/1": [NAME]})


@pytest.mark.parametrize("make", [answered_queries, fake_source])
def test_source_gives_the_keys_of_the_instance_and_no_others(
    make: Callable[[], PlatformSource],
) -> None:
    """The fake of the verifier's tests behaves as the real source."""
    source = make()
    for expected in (NAME, STRANGER):
        with_key = source.answer("team-a", "metal://rack-1/1", RULES, expected=expected)
        assert with_key == PlatformAnswer(endorsement_keys=frozenset({NAME}))
        assert source.answer("team-a", "metal://rack-1/2", RULES, expected=expected) == NOTHING


def fixture_with_key() -> Fixture:
    fixture = Fixture()
    fixture.platform.keys["metal://rack-1/1"] = [public_der(KEY)]
    return fixture


def test_first_call_starts_one_query_and_does_not_wait() -> None:
    fixture = fixture_with_key()
    for _ in range(3):
        fixture.expect(PlatformAnswerPending)
    assert (fixture.pool.run(), fixture.platform.asked) == (1, ["metal://rack-1/1"])
    assert fixture.answered == ["metal://rack-1/1"]
    assert fixture.keys() == {NAME}


def test_answer_with_the_expected_key_is_used_for_an_hour() -> None:
    fixture = fixture_with_key()
    fixture.answer()
    fixture.seconds += KEY_SECONDS - 1
    assert fixture.keys() == {NAME}
    fixture.seconds += 1
    fixture.answer()
    assert len(fixture.platform.asked) == 2


@pytest.mark.parametrize("keys", [(), (public_der(KEY),)])
def test_answer_without_the_expected_key_is_used_for_a_minute(keys: Collection[bytes]) -> None:
    """An instance with a name that was used before has another TPM."""
    fixture = Fixture()
    fixture.platform.keys["metal://rack-1/1"] = keys
    fixture.answer(expected=STRANGER)
    fixture.seconds += OTHER_KEY_SECONDS - 1
    assert len(fixture.keys(expected=STRANGER)) == len(keys)
    fixture.seconds += 1
    fixture.answer(expected=STRANGER)


def test_new_instance_of_an_old_name_joins_after_a_minute() -> None:
    fixture = fixture_with_key()
    fixture.answer()
    new = ec.generate_private_key(ec.SECP256R1())
    name = spki_sha256(new.public_key()).hex()
    fixture.platform.keys["metal://rack-1/1"] = [public_der(new)]
    fixture.seconds += OTHER_KEY_SECONDS
    assert fixture.keys() == {NAME}
    fixture.answer(expected=name)
    assert fixture.keys(expected=name) == {name}


@pytest.mark.parametrize("error", [PlatformUnavailable, PlatformQueryFailed])
def test_failed_query_is_repeated_after_some_seconds(error: type[AttestationError]) -> None:
    fixture = fixture_with_key()
    fixture.platform.error = error("no", detail="secret of the operator")
    fixture.answer()
    with pytest.raises(error) as caught:
        fixture.keys()
    assert (caught.value.message, caught.value.detail) == ("no", "secret of the operator")
    fixture.seconds += FAILURE_SECONDS - 1
    fixture.expect(error)
    assert not fixture.pool.tasks
    fixture.seconds += 1
    fixture.platform.error = None
    # The reason stays until the new answer is there.
    fixture.expect(error)
    assert fixture.pool.run() == 1
    assert fixture.keys() == {NAME}


def test_two_waiting_requests_get_exceptions_of_their_own() -> None:
    """One exception that several threads raise would collect their tracebacks."""
    fixture = Fixture()
    fixture.platform.error = PlatformQueryFailed("no")
    fixture.answer()
    caught = []
    for _ in range(2):
        with pytest.raises(PlatformQueryFailed) as raised:
            fixture.keys()
        caught.append(raised.value)
    assert caught[0] is not caught[1]


def test_exception_of_a_platform_decides_nothing(caplog: pytest.LogCaptureFixture) -> None:
    fixture = Fixture()
    fixture.platform.error = ZeroDivisionError("a bug of the platform")
    fixture.answer()
    fixture.expect(PlatformQueryFailed)
    assert "a bug of the platform" in caplog.text


@pytest.mark.parametrize(
    "provider_id", ["metal://rack-2/1", "metal://rack-10/1", "aws:///eu-central-1a/i-01234567"]
)
def test_provider_id_of_another_location_is_not_queried(provider_id: str) -> None:
    fixture = Fixture()
    fixture.answer(provider_id)
    fixture.expect(PlatformLocationNotAllowed, provider_id)
    assert fixture.platform.asked == []


def test_platform_compares_the_location_that_no_provider_id_names() -> None:
    provider_id = "metal:///1"
    fixture = Fixture(FakePlatform(error=PlatformLocationNotAllowed("the instance is elsewhere")))
    fixture.answer(provider_id)
    fixture.expect(PlatformLocationNotAllowed, provider_id)
    assert fixture.platform.asked == [provider_id]


@pytest.mark.parametrize(
    "keys",
    [
        [b"no key"],
        [public_der(ed25519.Ed25519PrivateKey.generate())],
        [public_der(KEY), b""],
        [public_der(KEY)] * 9,
    ],
    ids=["no key", "unsupported type", "one of two", "too many"],
)
def test_keys_that_cannot_be_read_decide_nothing(keys: Collection[bytes]) -> None:
    fixture = Fixture()
    fixture.platform.keys["metal://rack-1/1"] = keys
    fixture.answer()
    fixture.expect(PlatformQueryFailed)


def test_answers_of_one_account_are_not_those_of_another() -> None:
    fixture = fixture_with_key()
    fixture.answer()
    other = replace(RULES, credentials_file="/etc/signer/other")
    with pytest.raises(PlatformAnswerPending):
        fixture.keys(rules=other)


def test_tenant_with_many_provider_ids_does_not_use_up_the_queries_of_another() -> None:
    fixture = Fixture()
    assert fixture.start(*range(1000), namespace="hostile") == BURST / 2
    fixture.answer("honest", namespace="honest")
    assert fixture.keys("honest", namespace="honest") == set()
    fixture.seconds += 3
    assert QPS <= fixture.start(*range(1000, 2000), namespace="hostile") <= 3 * QPS / 2


def test_tenant_with_many_namespaces_does_not_use_up_the_queries_of_an_account() -> None:
    """The limit was for each namespace, and a hundred of them took the quota of the account."""
    fixture = Fixture()
    started = 0
    for second in range(60):
        fixture.seconds += 1
        for n in range(100):
            started += fixture.start(f"{second}-{n}", namespace=f"hostile-{n}")
    # At first each namespace that comes gets its part of what is left.
    assert started <= 60 * QPS + 5 * BURST
    fixture.answer("honest", namespace="honest")
    assert fixture.keys("honest", namespace="honest") == set()


def test_failed_query_about_another_key_discards_no_answer() -> None:
    """During an outage, an offer with any other key kept the machine's own node from renewing."""
    fixture = fixture_with_key()
    fixture.answer()
    fixture.seconds += OTHER_KEY_SECONDS
    fixture.platform.error = PlatformUnavailable("no answer")
    fixture.answer(expected=STRANGER)
    fixture.expect(PlatformUnavailable, expected=STRANGER)
    assert fixture.keys() == {NAME}
    fixture.seconds += KEY_SECONDS - OTHER_KEY_SECONDS
    fixture.expect(PlatformUnavailable)


def test_instance_that_was_moved_elsewhere_loses_its_answer() -> None:
    fixture = fixture_with_key()
    fixture.answer()
    fixture.seconds += OTHER_KEY_SECONDS
    fixture.platform.error = PlatformLocationNotAllowed("elsewhere")
    fixture.answer(expected=STRANGER)
    fixture.expect(PlatformLocationNotAllowed)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_replicas_divide_the_limits_of_an_account(replicas: int) -> None:
    """Each replica had all of them, so more replicas used up more of the account's quota."""
    fixtures = [Fixture(replicas=replicas) for _ in range(replicas)]
    for n, fixture in product(range(20), fixtures):
        fixture.expect(PlatformAnswerPending, str(n))
    assert sum(len(fixture.pool.tasks) for fixture in fixtures) == MAX_CONCURRENT
    started = sum(fixture.pool.run() for fixture in fixtures)
    started += sum(fixture.start(n) for n, fixture in product(range(20, 1000), fixtures))
    assert started == BURST / 2
    for fixture in fixtures:
        fixture.seconds += 10
    started = sum(fixture.start(n) for n, fixture in product(range(1000, 2000), fixtures))
    assert started == 10 * QPS / 2


def test_replica_that_does_not_know_the_others_uses_the_whole_limits() -> None:
    fixture = Fixture(replicas=0)
    for n in range(20):
        fixture.expect(PlatformAnswerPending, str(n))
    assert len(fixture.pool.tasks) == MAX_CONCURRENT


def test_query_that_does_not_end_gets_a_reason() -> None:
    fixture = Fixture()
    fixture.expect(PlatformAnswerPending)
    fixture.seconds += OVERDUE_SECONDS
    fixture.expect(PlatformAnswerPending)
    fixture.seconds += 1
    fixture.expect(PlatformUnavailable)


def open_breaker(fixture: Fixture) -> None:
    fixture.platform.error = PlatformUnavailable("no answer")
    for n in range(3):
        fixture.answer(f"down-{n}")


def test_platform_that_does_not_answer_is_probed_later(caplog: pytest.LogCaptureFixture) -> None:
    fixture = fixture_with_key()
    open_breaker(fixture)
    assert "circuit breaker of a platform opened" in caplog.text
    fixture.expect(PlatformUnavailable)
    assert not fixture.pool.tasks
    fixture.seconds += 2
    fixture.platform.error = None
    fixture.expect(PlatformAnswerPending)
    fixture.expect(PlatformAnswerPending, "2")
    assert fixture.pool.run() == 1  # one probe
    assert fixture.keys() == {NAME}
    fixture.answer("2")


def test_outage_of_one_account_does_not_stop_another() -> None:
    fixture = fixture_with_key()
    open_breaker(fixture)
    fixture.platform.error = None
    other = replace(RULES, credentials_file="/etc/signer/other")
    with pytest.raises(PlatformAnswerPending):
        fixture.keys(rules=other)
    assert fixture.pool.run() == 1
    assert fixture.keys(rules=other) == {NAME}


def test_refusals_that_a_tenant_causes_do_not_open_the_breaker() -> None:
    """The provider ID of an instance that the account may not query is refused (403)."""
    fixture = fixture_with_key()
    fixture.platform.error = PlatformQueryFailed("not permitted")
    for n in range(10):
        fixture.answer(f"foreign-{n}")
    fixture.platform.error = None
    fixture.answer()
    assert fixture.keys() == {NAME}


def test_provider_ids_that_are_not_queried_do_not_close_the_breaker() -> None:
    """They cause no call, so they do not show that the platform answers again."""
    fixture = Fixture()
    open_breaker(fixture)
    fixture.seconds += 2
    fixture.answer("metal://rack-2/1")
    fixture.expect(PlatformAnswerPending, "1")
    fixture.expect(PlatformAnswerPending, "2")
    assert fixture.pool.run() == 1  # still half-open: one probe
    fixture.expect(PlatformUnavailable, "2")


def test_outage_does_not_end_a_good_answer() -> None:
    fixture = fixture_with_key()
    fixture.answer()
    open_breaker(fixture)
    assert fixture.keys() == {NAME}


def test_number_of_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_MAX_ANSWERS", 3)
    fixture = fixture_with_key()
    for instance in ("1", "2", "3", "4"):
        fixture.answer(instance)
    assert len(fixture.queries._state.answers) == 3
    fixture.answer()


class VmIds:
    """A platform that knows virtual machines, and no keys."""

    vm_id_of_1: str | None = "390cbcf5-6c67-4d9b-98ef-c3f1699cc8fc"

    def location(self, _: str) -> str:
        return "rack-1"

    def vm_id(self, provider_id: str) -> str | None:
        return self.vm_id_of_1 if provider_id == "vm://rack-1/1" else None


def test_platform_of_virtual_machines_is_queried_again_after_a_minute() -> None:
    """A virtual machine of the same name may have followed, and no key says that it has not."""
    fixture, platform = Fixture(), VmIds()
    source = PlatformQueries(
        fixture.pool,
        lambda _: platform,
        answered=fixture.answered.append,
        replicas=lambda: 1,
        monotonic=lambda: fixture.seconds,
    )

    def vm_id() -> str | None:
        return source.answer("team-a", "vm://rack-1/1", RULES, expected=NAME).vm_id

    for following in ("5d9b7a5e-67d2-4fb0-8b53-1a3c1f6f2d11", None):
        with pytest.raises(PlatformAnswerPending):
            vm_id()
        assert fixture.pool.run() == 1
        before, platform.vm_id_of_1 = platform.vm_id_of_1, following
        fixture.seconds += OTHER_KEY_SECONDS - 1
        assert vm_id() == before
        fixture.seconds += 1


@dataclass(slots=True)
class SlowPlatform(FakePlatform):
    """A platform whose answers come when the test ends."""

    end: Event = field(default_factory=Event)
    begun: Semaphore = field(default_factory=lambda: Semaphore(0))

    def endorsement_keys(self, provider_id: str) -> Collection[bytes]:
        assert provider_id
        self.begun.release()
        assert self.end.wait(SECONDS)
        return ()


def test_slow_platform_of_one_tenant_does_not_stop_the_queries_of_another() -> None:
    slow, fast = SlowPlatform(), FakePlatform(keys={"metal://rack-1/1": [public_der(KEY)]})
    platforms: dict[str, Platform] = {"/slow": slow, "/fast": fast}
    answered: Semaphore = Semaphore(0)
    source = PlatformQueries(
        TaskPool(16),
        lambda rules: platforms[rules.credentials_file],
        answered=lambda _: answered.release(),
        replicas=lambda: 1,
        monotonic=lambda: 0.0,
    )
    for n in range(100):
        with pytest.raises(PlatformAnswerPending):
            source.answer(
                "hostile",
                f"metal://rack-1/{n}",
                replace(RULES, credentials_file="/slow"),
                expected=NAME,
            )
    for _ in range(MAX_CONCURRENT):
        assert slow.begun.acquire(timeout=SECONDS)
    rules = replace(RULES, credentials_file="/fast")
    with pytest.raises(PlatformAnswerPending):
        source.answer("honest", "metal://rack-1/1", rules, expected=NAME)
    assert answered.acquire(timeout=SECONDS)
    answer = source.answer("honest", "metal://rack-1/1", rules, expected=NAME)
    assert answer.endorsement_keys == {NAME}
    slow.end.set()
