"""Every interleaving, breadth first: what is lost, and a shortest way there."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.actors import HONEST, steps
from tests.model.invariants import Invariant, is_served, lost_by
from tests.model.state import Certificate, State
from tests.model.world import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was seen, with a shortest trace for each invariant that is lost."""

    states: int
    steps: int
    certificates: frozenset[Certificate]
    lost: dict[Invariant, list[str]]


@dataclass(slots=True)
class _Graph:
    """Reachable states by number: how each was first reached, and from where honest steps come."""

    states: list[State] = field(default_factory=list)
    numbers: dict[State, int] = field(default_factory=dict)
    reached: list[tuple[int, str]] = field(default_factory=list)
    honest: list[list[int]] = field(default_factory=list)

    def number(self, state: State, parent: int, text: str) -> int:
        """Return the number of a state, a new one when it was never seen."""
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.reached.append((parent, text))
            self.honest.append([])
        return number

    def trace(self, number: int) -> list[str]:
        """Tell how a state was first reached, which is a shortest way."""
        lines = []
        while number:
            number, text = self.reached[number]
            lines.append(text)
        return lines[::-1]

    def backwards(self, goal: Iterable[int]) -> set[int]:
        """Return the states from which honest steps can lead to the goal."""
        todo = list(goal)
        found = set(todo)
        while todo:
            before = set(self.honest[todo.pop()]) - found
            found |= before
            todo += before
        return found


def explore(model: Model, until: Invariant | None = None) -> Result:
    """Look at every reachable state and step; with `until`, only as far as that is lost."""
    graph = _Graph()
    graph.number(State(), 0, "")
    lost: dict[Invariant, list[str]] = {}
    taken = 0
    for number, state in enumerate(graph.states):  # which grows meanwhile
        for step in steps(model, state):
            taken += 1
            text = f"{step.actor}: {step.text}"
            for invariant in lost_by(model, step):
                if invariant not in lost:
                    lost[invariant] = [*graph.trace(number), text]
            after = graph.number(step.after, number, text)
            if step.actor in HONEST:
                graph.honest[after].append(number)
        if until in lost:
            break
    else:
        lost |= _lost_liveness(model, graph)
    certificates = frozenset(c for state in graph.states for c in state.certificates)
    return Result(states=len(graph.states), steps=taken, certificates=certificates, lost=lost)


def _lost_liveness(model: Model, graph: _Graph) -> dict[Invariant, list[str]]:
    """Find a state from which honest steps alone can never serve some host.

    They never lead out of the explored states, of which there are finitely many. So where a state
    that serves can be reached from each of them, a fair scheduler does reach one, again and again.
    """
    for host in model.scenario.hosts:
        served = (n for n, state in enumerate(graph.states) if is_served(model, state, host))
        never = set(range(len(graph.states))) - graph.backwards(served)
        if never:
            stuck = f"from here no honest steps serve {'/'.join(host.place)} with {host.key}"
            return {Invariant.LIVENESS: [*graph.trace(min(never)), stuck]}
    return {}
