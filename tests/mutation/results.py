"""The results of a run, and what an earlier run caught that this one does not."""

from collections.abc import Iterator, Mapping
from typing import TypedDict


class Result(TypedDict):
    """What happened to a mutant."""

    change: str
    caught_by: str
    """The test that failed first; empty if the mutant survived."""


Results = Mapping[str, Result]
"""By the name of the mutant: `module:owner:kind:ordinal`."""


def find_lost(before: Results, after: Results) -> Iterator[str]:
    """Yield the names of the mutants that survive now and were caught before.

    The mutant of an earlier run is the one with its name and change, else with its change in a
    function of the same name, else with its name. If there is none, its code no longer exists.
    """
    by_change = {(_function(name), result["change"]): name for name, result in after.items()}
    for name, result in before.items():
        now = name
        if name not in after or after[name]["change"] != result["change"]:
            now = by_change.get((_function(name), result["change"]), name)
        if result["caught_by"] and now in after and not after[now]["caught_by"]:
            yield now


def _function(name: str) -> str:
    """Return the owner and the kind of a mutant: the module may have moved."""
    return name.split(":", 1)[1].rsplit(":", 1)[0]
