"""Print the tables of docs/model.md, or the shortest traces of one scenario.

python -m tests.model
python -m tests.model 'stolen token' Certified
python -m tests.model 'one key' Certified SECOND_WRITE
"""

import sys

from tests.model.explore import explore
from tests.model.model import Model
from tests.model.modes import Mode
from tests.model.results import story, tables
from tests.model.rules import Rule
from tests.model.scenarios import SCENARIOS


def main(arguments: list[str]) -> None:
    """Print the tables, or the shortest traces of one scenario."""
    if not arguments:
        sys.stdout.writelines(f"{line}\n" for line in tables())
        return
    name, mode, *rules = arguments
    broken = frozenset(Rule[rule] for rule in rules)
    model = Model(SCENARIOS[name](Mode(mode)), Mode(mode), broken)
    result = explore(model)
    traces = story(result) or "nothing is lost"
    sys.stdout.write(f"{traces}\n\n{result.states} states, {result.steps} steps\n")


main(sys.argv[1:])
