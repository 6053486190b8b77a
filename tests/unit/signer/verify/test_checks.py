"""Protocol, code, errors and tests speak of the same checks, by the same numbers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import signer.verify
from common.errors import AttestationError

ROOT = Path(__file__).parents[4]
ROW = re.compile(r"^\| ([RPCAQMEKSI][0-9]) \|", re.MULTILINE)

IN_CODE = ROW.findall(signer.verify.__doc__ or "")
CLIENT_SIDE = {""}
"""Leaves of the node have no check of the signer's."""


def leaves(root: type[AttestationError] = AttestationError) -> Iterator[type[AttestationError]]:
    """Walk over the leaves of the tree of errors."""
    children = root.__subclasses__()
    for child in children:
        yield from leaves(child)
    if not children:
        yield root


def test_the_table_in_code_is_that_of_the_protocol() -> None:
    """Every number once, and no other."""
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    assert sorted(IN_CODE) == sorted(set(IN_CODE)) == sorted(ROW.findall(text))


def test_every_error_of_the_signer_is_of_a_check() -> None:
    """And every check of the signer can fail."""
    numbers = {leaf.check for leaf in leaves()} - CLIENT_SIDE
    assert numbers == set(IN_CODE)


@pytest.mark.parametrize("number", IN_CODE)
def test_every_check_has_tests_that_name_it(number: str) -> None:
    """By its number, in the name of a test or of a table of mutations."""
    names = re.compile(rf"def test_{number.lower()}_|^{number}(?:_[A-Z0-9]+)?\b.* = ", re.MULTILINE)
    folders = (ROOT / "tests" / "unit" / "signer", ROOT / "tests" / "unit" / "common")
    sources = [path for folder in folders for path in folder.rglob("test_*.py")]
    assert any(names.search(path.read_text(encoding="utf-8")) for path in sources)


def test_the_files_of_the_table_exist() -> None:
    """A check that has moved is found."""
    rows = [line for line in (signer.verify.__doc__ or "").splitlines() if ROW.match(line)]
    for row in rows:
        for name in row.split("|")[3].split(","):
            path = Path(name.strip())
            folder = ROOT if len(path.parts) > 1 else ROOT / "signer" / "verify"
            assert (folder / path).is_file(), path
