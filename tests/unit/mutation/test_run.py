"""Mutants of a small product: tests catch some of them, and only without one they must all pass."""

import subprocess
import sys
from pathlib import Path

PRODUCT = """
from functools import cache

LIMIT = 3


def never_called(a, b):
    return a and b


@cache
def may(size):
    def fits():
        return size < LIMIT

    if not fits():
        raise ValueError("too large")
    return True
"""
TESTS = """
import pytest

from product.check import LIMIT, may

assert may(2)  # The cache has it before a mutant runs.


def test_small():
    assert may(2) is True


def test_large():
    with pytest.raises(ValueError):
        may(LIMIT)


def test_without_a_mutant():
    assert FLAG
"""
SCRIPT = """
import sys
from pathlib import Path
from tests.mutation.changes import find_mutants
from tests.mutation.run import run_mutants

root = Path.cwd()
complete = run_mutants(
    list(find_mutants(root / "product/check.py", "product.check")),
    ["test_check.py"],
    product=(f"{root}/product/",),
    report=lambda mutant, caught_by: print(f"> {mutant.name}, {caught_by or 'survived'}"),
    first={"product.check:may:negate:1": "test_check.py::test_large"},
)
print(f"> complete: {complete}")
"""


def run(directory: Path, *, flag: bool) -> list[str]:
    """Run the mutants of the product; return what is printed about them."""
    (directory / "product").mkdir()
    (directory / "product/check.py").write_text(PRODUCT)
    (directory / "test_check.py").write_text(TESTS.replace("FLAG", str(flag)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=directory,
        env={"PYTHONPATH": f"{directory}:{Path(__file__).parents[3]}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if line.startswith("> ")]


def test_each_mutant_runs_in_the_tests_that_call_it(tmp_path: Path) -> None:
    assert run(tmp_path, flag=True) == [
        "> product.check:LIMIT:constant:1, survived",
        "> product.check:never_called:operator:1, survived",
        "> product.check:never_called:negate:1, survived",
        "> product.check:never_called:negate:2, survived",
        "> product.check:may:negate:1, test_check.py::test_large",
        "> product.check:may:raise:1, test_check.py::test_large",
        "> product.check:may:constant:1, test_check.py::test_small",
        "> product.check:may.<locals>.fits:negate:1, test_check.py::test_small",
        "> product.check:may.<locals>.fits:boundary:1, test_check.py::test_large",
        "> complete: True",
    ]


def test_nothing_runs_while_a_test_fails_without_a_mutant(tmp_path: Path) -> None:
    assert run(tmp_path, flag=False) == ["> complete: False"]
