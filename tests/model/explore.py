"""Explore every interleaving, breadth first: which invariants are lost, with a shortest trace."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.model.actors import HONEST, steps
from tests.model.broken import running
from tests.model.invariants import Invariant, is_served, lost_by
from tests.model.model import Model
from tests.model.state import Certificate, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The number of states and steps, with a shortest trace for each lost invariant."""

    states: int
    steps: int
    certificates: frozenset[Certificate]
    lost: dict[Invariant, list[str]]


@dataclass(slots=True)
class _Graph:
    """Numbered states, with how each was first reached and its honest predecessors."""

    states: list[State] = field(default_factory=list)
    numbers: dict[State, int] = field(default_factory=dict)
    reached: list[tuple[int, str]] = field(default_factory=list)
    honest: list[list[int]] = field(default_factory=list)

    def number(self, state: State, parent: int, text: str) -> int:
        """Return the number of a state; a state that was not seen before gets the next number."""
        number = self.numbers.setdefault(state, len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self.reached.append((parent, text))
            self.honest.append([])
        return number

    def trace(self, number: int) -> list[str]:
        """Return a shortest trace to a state: the one by which it was first reached."""
        lines = []
        while number:
            number, text = self.reached[number]
            lines.append(text)
        return lines[::-1]

    def backwards(self, goal: Iterable[int]) -> set[int]:
        """Return the states from which honest steps can lead to the goal."""
        todo = list(goal)
        reaching = set(todo)
        while todo:
            predecessors = set(self.honest[todo.pop()]) - reaching
            reaching |= predecessors
            todo += predecessors
        return reaching


def explore(model: Model, until: Invariant | None = None) -> Result:
    """Explore every reachable state and step. With `until`, stop when that invariant is lost."""
    with running(model.broken):
        return _explore(model, until)


def _explore(model: Model, until: Invariant | None) -> Result:
    graph = _Graph()
    graph.number(model.start, 0, "")
    lost: dict[Invariant, list[str]] = {}
    taken = 0
    for number, state in enumerate(graph.states):  # The list grows during the loop
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

    Honest steps never leave the explored states, and those are finite. So if a state that serves
    the host is reachable from each of them, a fair scheduler reaches one again and again.
    """
    for host in model.scenario.hosts:
        served = (n for n, state in enumerate(graph.states) if is_served(model, state, host))
        never = set(range(len(graph.states))) - graph.backwards(served)
        if never:
            stuck = f"from here no honest steps serve {'/'.join(host.place)} with {host.key}"
            return {Invariant.LIVENESS: [*graph.trace(min(never)), stuck]}
    return {}
