"""The tests that docs/threat-model.md names exist, and it names each family of attacks."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", TEXT)))
PUBLISHED_CVES = "attacks/test_published_cves.py"


@cache
def functions(path: str) -> frozenset[str]:
    """List the functions of a file of tests."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_each_named_test_exists(path: str, name: str) -> None:
    assert name in functions(path)


def test_each_test_of_a_published_incident_is_named() -> None:
    tests = {name for name in functions(PUBLISHED_CVES) if name.startswith("test_")}
    assert tests == {name for path, name in NAMED if path == PUBLISHED_CVES}


def test_each_incident_has_a_test() -> None:
    """Each row of a table of incidents, which has a column of tests, names at least one."""
    incidents = TEXT[TEXT.index("## Incidents") :]
    tables = re.findall(r"^\|.*\| tests \|\n\|[-|]+\n((?:\|.*\n)+)", incidents, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 40
    assert [row for row in rows if "::test_" not in row] == []


def test_each_family_is_named() -> None:
    families = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    others = {"test_published_cves.py", "test_attack_table.py", Path(__file__).name}
    assert families - others <= set(re.findall(r"`(test_\w+\.py)`", TEXT))
