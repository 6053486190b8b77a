"""Golden vectors, which build.py makes."""

import json
from pathlib import Path
from typing import Any


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of one file, e.g. `quotes`."""
    document = json.loads((Path(__file__).parent / f"{name}.json").read_text())
    found: list[dict[str, Any]] = document["cases"]
    return found
