"""JSON of the files that hold exchanges and cooldowns: a format number, and a list of entries.

The files have no checksum (see `store`). So the type of every field is checked, and the decoder
raises ordinary exceptions, which `store` turns into a warning.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar

from authenticator.model import Cooldown, PendingExchange

FORMAT: Final = 2
_BINARY_FIELDS: Final = frozenset({"key", "offer", "answer"})
Entry = TypeVar("Entry", PendingExchange, Cooldown)


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Return the content of a file. Bytes are written as base64."""
    document = {"format": FORMAT, "entries": [*map(asdict, entries)]}
    return json.dumps(document, default=lambda value: b64encode(value).decode()).encode()


def decode_entries(kind: type[Entry], content: bytes) -> list[Entry]:
    """Return the entries of a file, each with the fields of `kind` and their types.

    Raises `KeyError`, `TypeError` or `ValueError` when it is damaged, or of another version.
    """
    document = decode_object(content)
    if document is None or document["format"] != FORMAT:
        raise ValueError(FORMAT)
    return [_decode(kind, entry) for entry in _instance(document["entries"], list)]


def decode_object(content: bytes) -> dict[str, object] | None:
    """Return a JSON object, None for anything else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _decode(kind: type[Entry], entry: object) -> Entry:
    values = dict(_instance(entry, dict))
    for name in _BINARY_FIELDS & values.keys():
        if values[name] is not None:
            values[name] = b64decode(_instance(values[name], str), validate=True)
    return kind(**{field.name: _instance(values[field.name], field.type) for field in fields(kind)})


def _instance(value: object, kind: Any) -> Any:  # noqa: ANN401 - a type, and what is of it
    if not isinstance(value, kind):
        raise TypeError
    return value
