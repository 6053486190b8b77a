"""Reads JSON of objects whose API versions come and go: what is not there is `None`.

The API server has held these objects against their schemas; what a schema does not promise is
checked here.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]


def get_path(body: object, *path: str) -> object:
    """Return what stands at a path of keys."""
    for key in path:
        if not isinstance(body, Mapping):
            return None
        body = body.get(key)
    return body


def get_str(body: object, *path: str) -> str | None:
    """Return the text at a path; an empty one is none."""
    value = get_path(body, *path)
    return value if isinstance(value, str) and value else None


def get_strings(body: object, *path: str) -> tuple[str, ...]:
    """Return the texts of the list at a path."""
    value = get_path(body, *path)
    return tuple(v for v in value if isinstance(v, str) and v) if isinstance(value, list) else ()


def get_objects(body: object, *path: str) -> Iterator[Json]:
    """Yield the objects of the list at a path."""
    value = get_path(body, *path)
    if isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, Mapping))


def annotations(body: object) -> Mapping[str, str]:
    """Return an object's annotations. Raises `ValueError`: the object cannot be read."""
    return _texts_by_name(body, "annotations")


def labels(body: object) -> Mapping[str, str]:
    """Return an object's labels. Raises `ValueError`: the object cannot be read."""
    return _texts_by_name(body, "labels")


def _texts_by_name(body: object, key: str) -> Mapping[str, str]:
    value = get_path(body, "metadata", key)
    found = dict(value) if isinstance(value, Mapping) else {}
    if not all(isinstance(v, str) for v in found.values()):
        raise ValueError(f"metadata.{key} holds something else than texts")
    return found


def require_str(body: object, *path: str) -> str:
    """Return the text at a path that no object of its kind is without.

    Raises `ValueError`: the object cannot be read.
    """
    value = get_str(body, *path)
    if value is None:
        raise ValueError(f"{'.'.join(path)} is missing")
    return value


def require_time(body: object, *path: str) -> datetime:
    """Return the point in time at a path.

    Raises `ValueError`: the object cannot be read.
    """
    value = datetime.fromisoformat(require_str(body, *path))
    if value.tzinfo is None:
        raise ValueError(f"{'.'.join(path)} has no time zone")
    return value
