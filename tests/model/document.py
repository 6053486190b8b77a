"""Read the tables of docs/model.md."""

from pathlib import Path

_DOCUMENT = Path(__file__).parents[2] / "docs" / "model.md"


def table(first_column: str) -> list[str]:
    """Return the rows of the table whose first column has that title."""
    lines = iter(_DOCUMENT.read_text().splitlines())
    for line in lines:
        if line.startswith(f"| {first_column} |"):
            break
    next(lines)
    rows = []
    for line in lines:
        if not line:
            break
        rows.append(line)
    return rows
