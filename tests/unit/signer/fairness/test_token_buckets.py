"""Tokens that several tenants share."""

from dataclasses import dataclass, field

from signer.fairness.token_buckets import SharedTokens

QPS, BURST = 8.0, 80.0


@dataclass(slots=True)
class Shared:
    """Shared tokens, and the clock."""

    seconds: float = 0.0
    tokens: SharedTokens = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = SharedTokens(qps=QPS, burst=BURST, monotonic=lambda: self.seconds)

    def take(self, tenant: str, most: int = 1000) -> int:
        """Take as many tokens as there are, up to a number; return how many."""
        taken = 0
        while taken < most and self.tokens.try_acquire(tenant):
            taken += 1
        return taken


def test_tenant_that_is_alone_gets_half() -> None:
    shared = Shared()
    assert shared.take("a") == BURST / 2
    shared.seconds += 5
    assert shared.take("a") == 5 * QPS / 2


def test_next_tenant_gets_its_part_whatever_the_others_took() -> None:
    shared = Shared()
    for n in range(7):
        shared.take(f"hostile-{n}")
    assert shared.take("honest") == int(BURST / 9)


def test_many_tenants_get_no_more_than_all_tokens_in_the_long_run() -> None:
    shared = Shared()
    tenants = [f"tenant-{n}" for n in range(20)]
    taken = 0
    for second in range(300):
        if second == 200:
            taken = 0
        shared.seconds += 1
        taken += sum(shared.take(tenant) for tenant in tenants)
    assert 90 * QPS <= taken <= 100 * QPS


def test_more_tenants_than_tokens_get_one_each() -> None:
    """Otherwise the part of each would be less than one token, and none would get any."""
    shared = Shared()
    assert all(shared.take(f"tenant-{n}", most=1) for n in range(200))


def test_part_of_an_tenant_that_has_stopped_goes_to_the_others() -> None:
    shared = Shared()
    shared.take("a")
    shared.take("b")
    shared.seconds += 60
    assert shared.take("a") == BURST / 2
