"""Which modules exist and import each other, besides the import contracts of pyproject.toml."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("heading", "program"),
    [("Packages of the node's program", "authenticator"), ("Packages of the signer", "signer")],
)
def test_architecture_has_every_package_of_a_program(heading: str, program: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    listed = [name for row in rows for name in row.split(", ")]
    packages = {f"{path.parent.name}/" for path in (ROOT / program).glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / program).glob("[!_]*.py")}
    assert sorted(name.strip("`") for name in listed) == sorted(packages | modules)


def test_no_test_module_imports_another_one() -> None:
    """What several modules need stands in `tests/builders`, or in a module without tests."""
    importing = re.compile(r"^(?:from|import) tests\.(?:\w+\.)*test_\w+ ?", re.MULTILINE)
    paths = sorted((ROOT / "tests").rglob("*.py"))
    assert [path for path in paths if importing.search(path.read_text(encoding="utf-8"))] == []
