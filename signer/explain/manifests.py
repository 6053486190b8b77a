"""Objects from files, as `kubectl get -o json` or `-o yaml` writes them: one, a List, or several.

JSON is read many times faster than YAML; a large cluster is best given in it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from common import strict_yaml
from signer.kube.decode import Json


class FilesInvalid(Exception):
    """What was given cannot be used; `problems` are all reasons, one line each."""

    def __init__(self, *problems: str) -> None:
        """Keep every problem."""
        super().__init__("; ".join(problems))
        self.problems = problems


class _NoObjectError(ValueError):
    """What should be an object is none."""


def read_objects(path: Path) -> list[Json]:
    """Read every object in a file, out of Lists as well. Raises FilesInvalid."""
    try:
        return [item for document in _documents(path) for item in _items(document)]
    except OSError as e:
        raise FilesInvalid(f"{path}: {e.strerror}") from e
    except ValueError as e:
        raise FilesInvalid(f"{path}: {e}") from e
    except RecursionError as e:
        raise FilesInvalid(f"{path}: nested too deeply") from e


def _documents(path: Path) -> list[object]:
    content = path.read_bytes()
    if content.lstrip().startswith(b"{"):
        return [json.loads(content)]
    return strict_yaml.load_all(content)


def _items(document: object) -> Iterator[Json]:
    """Yield the object, or those of a List; a List of one kind leaves the kind out."""
    if document is None:
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise _NoObjectError("it holds something else than Kubernetes objects")
    kind = document["kind"]
    if not isinstance(document.get("items"), list) or not kind.endswith("List"):
        yield document
        return
    of_list = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for item in document["items"]:
        if not isinstance(item, dict):
            raise _NoObjectError("its list holds something else than objects")
        yield of_list | item


def kind_of(body: Json) -> tuple[str, str]:
    """Return an object's API group, empty for the core's, and its kind."""
    group, slash, _ = (get_str(body, "apiVersion") or "").partition("/")
    return (group if slash else "", get_str(body, "kind") or "")


def get_str(body: object, *path: str) -> str | None:
    """Return the text at a path of keys, `None` where there is none or an empty one."""
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body if isinstance(body, str) and body else None
