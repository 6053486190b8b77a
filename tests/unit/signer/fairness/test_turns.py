"""How long a tenant has waited for a worker that others hold."""

from collections import deque

from signer.fairness.turns import Turns


class World:
    """Turns for two workers, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: Turns[deque[int]] = Turns(2, deque, monotonic=lambda: self.now)

    def wait(self, seconds: float = 10.0) -> float:
        self.now += seconds
        return self.turns.longest_wait(bool)


def test_tenant_that_gets_no_worker_waits_and_one_above_its_share_does_not() -> None:
    world = World()
    turns = world.turns
    turns.waiting("large").extend(range(9))
    assert world.wait() == 10.0
    turns.take("large")
    turns.waiting("large").popleft()
    assert world.wait() == 0.0, "its own share holds it back"
    turns.waiting("other").append(1)
    assert world.wait() == 10.0
    turns.take("other")
    turns.waiting("third").append(1)
    assert world.wait() == 10.0
    turns.release("large")
    assert world.wait() == 20.0, "the third has waited longer than the large one"
    turns.take("third")
    assert world.wait() == 20.0, "the large one"


def test_tenant_of_whom_nothing_waits_or_may_start_waits_not() -> None:
    world = World()
    world.turns.waiting("a").append(1)
    world.now = 10.0
    assert world.turns.longest_wait(lambda _: False) == 0.0
    world.turns.waiting("a").pop()
    world.turns.forget_idle("a")
    assert world.wait() == 0.0
