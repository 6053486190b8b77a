"""Reads objects from files as `kubectl get -o json` or `-o yaml` writes them.

A file holds one object, a List, or several YAML documents. Use JSON for a large cluster: it is read
many times faster.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from common.formats import strict_yaml
from signer.errors import ProblemsError
from signer.kinds.decode import Json


class FilesInvalid(ProblemsError):
    """A file cannot be used."""


class _NotAnObjectError(ValueError):
    """A document or an item of a List is not a Kubernetes object."""


def read_objects(path: Path) -> list[Json]:
    """Return every object in a file, those in Lists included. Raises `FilesInvalid`."""
    try:
        return [item for document in _documents(path) for item in _items(document)]
    except OSError as error:
        raise FilesInvalid(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise FilesInvalid(f"{path}: {error}") from error
    except RecursionError as error:
        raise FilesInvalid(f"{path}: nested too deeply") from error


def _documents(path: Path) -> list[object]:
    content = path.read_bytes()
    if content.lstrip().startswith(b"{"):
        return [json.loads(content)]
    return strict_yaml.load_all(content)


def _items(document: object) -> Iterator[Json]:
    """Yield the object, or the items of a List."""
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise _NotAnObjectError("must hold Kubernetes objects only")
    kind = document["kind"]
    if not isinstance(document.get("items"), list) or not kind.endswith("List"):
        yield document
        return
    # The API server leaves version and kind out of the items of a typed list such as NodeList.
    defaults = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for item in document["items"]:
        if not isinstance(item, dict):
            raise _NotAnObjectError("items of a List must be objects")
        yield defaults | item


def kind_of(body: Json) -> tuple[str, str]:
    """Return an object's API group, which is empty for the core group, and its kind."""
    group, slash, _ = (get_str(body, "apiVersion") or "").partition("/")
    return (group if slash else "", get_str(body, "kind") or "")


def get_str(body: object, *path: str) -> str | None:
    """Return the string at a path of keys, `None` if it is absent or empty."""
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body if isinstance(body, str) and body else None
