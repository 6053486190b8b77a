"""What is not decided while an object cannot be read, by the effect of its kind."""

from collections.abc import Callable

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import MemoryBudget
from signer.kube.unreadable import Effect, Unreadable
from signer.kube.watches.cache import Cache

BAD = "team-b/bad"
UNREADABLE = Unreadable(key=BAD, problem="nested too deeply", kind="Thing", uid="u")
REFUSED = "things: team-b/bad cannot be read: correct or delete it"


def filled(effect: Effect, budget: MemoryBudget | None = None) -> Cache[str]:
    cache: Cache[str] = Cache(
        "things", indexes={"first": lambda v: [v[0]]}, budget=budget, unreadable=effect
    )
    cache.replace({"team-a/good": "ga", "team-b/good": "gb", BAD: "gx"})
    cache.refuse(BAD, UNREADABLE)
    return cache


@pytest.mark.parametrize(
    ("effect", "refused"),
    [
        (Effect.KIND, {"name", "kind"}),
        (Effect.NAMESPACE, {"namespace"}),
        (Effect.NAME, {"name"}),
        (Effect.NOTHING, set[str]()),
    ],
)
def test_effect_is_as_wide_as_what_the_object_may_name(effect: Effect, refused: set[str]) -> None:
    cache = filled(effect)
    reads: dict[str, Callable[[], object]] = {
        "name": lambda: cache.get(BAD),
        "kind": lambda: (cache.all(), cache.by_index("first", "g"), cache.index_keys("first")),
        "namespace": lambda: cache.require_complete("team-b"),
    }
    for what, read in reads.items():
        if what in refused:
            with pytest.raises(ApiServerUnavailable, match=REFUSED):
                read()
        else:
            read()
    assert cache.get("team-b/good") == "gb"
    cache.require_complete("team-a")
    assert not cache.is_complete
    with pytest.raises(ApiServerUnavailable, match=REFUSED):
        cache.require_readable()


def test_value_before_counts_no_more() -> None:
    """It is not the present one: nothing is decided from it."""
    cache, changes = filled(Effect.NAMESPACE), list[tuple[str, str | None, str | None]]()
    cache.add_event_handler(lambda *change: changes.append(change))
    cache.upsert("team-b/good", "new")
    cache.refuse("team-b/good", UNREADABLE)
    assert changes[-1] == ("team-b/good", "new", None)
    assert cache.get("team-b/good") is None


def test_tenant_pays_for_what_is_kept_of_its_unreadable_objects() -> None:
    """An API server could have any number of them."""
    budget = MemoryBudget(per_tenant=20_000)
    cache = filled(Effect.NAME, budget)
    for number in range(200):
        cache.refuse(f"team-b/{number}", UNREADABLE)
    assert 0 < len(cache.unreadable) < 200
    with pytest.raises(ApiServerUnavailable, match="exceed its memory budget"):
        cache.require_complete("team-b")
    cache.require_complete("team-a")
    cache.close()
    assert not budget.used()
