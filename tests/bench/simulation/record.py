"""Reads the figures that docs/performance.md records, so that they are written in one place."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[3] / "docs" / "performance.md"
_FACTORS: Final = {"ms": 0.001, "s": 1.0, "%": 0.01}
Table = Mapping[str, Mapping[str, str]]
"""Cells by the first cell of their row and by the head of their column."""


def recorded_table(before: str) -> Table:
    """Return the first table after a line of the page. Raises `ValueError` without one."""
    return read_table(_PAGE.read_text(encoding="utf-8"), before)


def read_table(page: str, before: str) -> Table:
    """Return the first table after a line of a page. Raises `ValueError` without one."""
    lines = page.splitlines()
    following = lines[lines.index(before) + 1 :]
    start = next((n for n, line in enumerate(following) if line.startswith("|")), None)
    if start is None:
        raise ValueError(f"{before!r} must be followed by a table")
    rows = []
    for line in following[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    head, _, *body = rows
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


def quantity(cell: str) -> float:
    """Return the seconds or the share that a cell begins with. Raises `ValueError` for others."""
    matched = re.match(r"([\d.]+) (ms|s|%)", cell)
    if matched is None:
        raise ValueError(f"{cell!r} must begin with a number and one of {', '.join(_FACTORS)}")
    return float(matched[1]) * _FACTORS[matched[2]]
