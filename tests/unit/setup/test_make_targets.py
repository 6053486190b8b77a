"""What no gate runs is broken soon: a gate runs each make target, or a reason says why not."""

import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
RULE: Final = re.compile(r"^([a-z0-9-]+):([^=\n]*?)(?:##.*)?\n((?:\t.*\n)*)", re.MULTILINE)
VARIABLE: Final = re.compile(r"^([A-Z_]+) := (.*)$", re.MULTILINE)

NOT_RUN: Final = {
    "help": "lists the targets",
    "clean": "removes what the others have made",
    "format": "changes the sources; `check` finds what it would change",
    "lock": "changes the locked versions",
    "manifests": "changes the manifests; a fast test compares them with the chart",
    "unit": "`test` runs the same tests",
    "demo": "`test-newcomer` follows the same steps; what it prints is for a reader",
    "recording": "makes a picture of the demo",
    "dashboard-picture": "makes a picture of the dashboard",
    "cluster": "runs until Ctrl-C",
    "prove": "Debian 12 has no ProVerif",
    "scorecard": "rates the repository; a rating has no pass or fail",
    "fuzz": "searches; `test` runs each fuzz target with stored examples",
    "mutants": "searches; lists what no test notices",
    "bench": "measures; a figure has no pass or fail",
    "simulate": "measures; a figure has no pass or fail",
}


def uses_of_targets() -> dict[str, set[str]]:
    """Return what each target needs or makes, also by a variable that lists targets."""
    rules = RULE.findall(MAKEFILE)
    targets = {name for name, _, _ in rules}
    text = MAKEFILE.replace("\\\n", " ")
    lists = {name: set(words.split()) for name, words in VARIABLE.findall(text)}
    uses: dict[str, set[str]] = {name: set() for name in targets}
    for name, needs, recipe in rules:
        made = re.findall(r"\$\(MAKE\)(?: --\S+)*((?: [a-z0-9-]+)+)", recipe)
        listed = [lists.get(variable, set()) for variable in re.findall(r"\$\((\w+)\)", recipe)]
        uses[name].update(needs.split(), *map(str.split, made))
        uses[name].update(*(words for words in listed if words <= targets))
    return uses


def test_every_target_is_run_by_a_gate_or_has_a_reason() -> None:
    uses = uses_of_targets()
    gate = (ROOT / ".ci/run").read_text(encoding="utf-8")
    unread = [*re.findall(r"^exec make (\S+)", gate, re.MULTILINE), "test-everything"]
    run: set[str] = set()
    while unread:
        name = unread.pop()
        if name in uses and name not in run:
            run.add(name)
            unread.extend(uses[name])
    assert uses.keys() - run == NOT_RUN.keys()
    assert not [name for name in NOT_RUN if name.startswith("test-")]


def test_make_lists_every_target_that_has_a_description() -> None:
    listed = subprocess.check_output(["make", "--no-print-directory"], cwd=ROOT, text=True)
    described = re.findall(r"^([^\s:]+):.*## ", MAKEFILE, re.MULTILINE)
    assert [line.split()[1] for line in listed.splitlines()] == described


def test_a_target_that_fails_stops_no_other_and_is_in_the_table(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("broken:\n\t@false\nsound:\n\t@echo made\n")
    done = subprocess.run(
        [ROOT / "tests/setup/each-target.sh", "broken", "sound"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    *_, first, second = [re.split(" +", line) for line in done.stdout.splitlines()]
    assert first[:2] == ["broken", "FAILED"]
    assert second[:2] == ["sound", "passed"]
    assert "made" in done.stdout
