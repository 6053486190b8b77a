"""Tables for terminals, and the same values as JSON or YAML.

Cells come from objects that tenants and nodes can write, so control characters are escaped.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from common.formats.strict_json import format_time
from common.formats.yaml_text import to_yaml

Document = Mapping[str, Any]
_SEPARATOR: Final = "   "
_WORD_ENDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z0-9])")
SHORT_KEY: Final = 12
"""Hex digits of a key in a table. All commands accept them."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, and the text that it shows of a document."""

    header: str
    text: Callable[[Document], str | None]
    wide: bool = False
    """Whether only `-o wide` shows it."""
    below: bool = False
    """Whether its text may be long: it has a line of its own below the row, except in `wide`."""


def render_list(documents: Sequence[Document], columns: Sequence[Column], output: str) -> str:
    """Return the documents as a table, or as one object with the key `items`."""
    if output in {"json", "yaml"}:
        return render_document({"items": list(documents)}, output)
    if output == "wide":
        return table(documents, columns)
    below = [c for c in columns if c.below]
    header, *rows = table(
        documents, [c for c in columns if not c.wide and not c.below]
    ).splitlines()
    lines = [header]
    for row, document in zip(rows, documents, strict=True):
        lines.append(row)
        lines += (f"  {_label(c)}: {printable(text)}" for c in below if (text := c.text(document)))
    return "".join(f"{line}\n" for line in lines)


def render_document(document: Document, output: str) -> str:
    """Return one object as JSON or YAML; for a terminal, as lines with the keys in words."""
    if output == "json":
        return json.dumps(document, indent=2) + "\n"
    if output == "yaml":
        return to_yaml(document)
    shown = {f"{_words(key)}:": printable(_plain(value)) for key, value in document.items()}
    width = max(map(len, shown), default=0)
    return "".join(f"{f'{key:{width}} {text}'.rstrip()}\n" for key, text in shown.items())


def table(documents: Sequence[Document], columns: Sequence[Column]) -> str:
    """Return a table with a line for each document, as wide as its cells."""
    rows = [[c.header for c in columns]]
    rows += [[printable(c.text(d) or "-") for c in columns] for d in documents]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = (
        _SEPARATOR.join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def printable(text: str) -> str:
    """Return the text with every character escaped that a terminal could act on."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def field(name: str) -> Callable[[Document], str | None]:
    """Return a cell that shows a value as it is."""
    return lambda document: None if document.get(name) is None else _plain(document[name])


def time_text(value: datetime | None) -> str | None:
    """Return a time as Kubernetes writes it."""
    return None if value is None else format_time(value)


def age(text: str | None, now: datetime) -> str | None:
    """Return how long ago a time of a document is, as kubectl shows it; negative if it is ahead."""
    if text is None:
        return None
    elapsed = now - datetime.fromisoformat(text)
    return f"-{duration(-elapsed)}" if elapsed < timedelta() else duration(elapsed)


def duration(value: timedelta) -> str:
    """Return a duration with its two largest units, such as `3d4h`."""
    seconds = int(value.total_seconds())
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60))
    parts = [(unit, number) for unit, number in (*units, ("s", seconds % 60)) if number]
    if not parts:
        return "0s"
    first = [unit for unit, _ in (*units, ("s", 0))].index(parts[0][0])
    nearest = "dhms"[first : first + 2]
    return "".join(f"{number}{unit}" for unit, number in parts if unit in nearest)


def _label(column: Column) -> str:
    return column.header.lower().replace("-", " ")


def _words(key: str) -> str:
    """Return a key of JSON, such as `providerID`, in words; a state, such as `Refused`, stays."""
    if key[:1].isupper():
        return key
    words = _WORD_ENDS.split(key)
    return " ".join(word if word.isupper() else word.lower() for word in words)


def _plain(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(item)} {_words(key)}" for key, item in value.items())
    return "yes" if value is True else "no" if value is False else str(value)
