"""A kubeconfig as it is found on nodes: read safely, its current context's cluster and user.

Read with a loader that makes nothing but plain values. Nothing that it names is run. Paths in it
are relative to its own folder, as everywhere in Kubernetes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from authenticator.errors import KubeconfigUnusable

SIZE_LIMIT: Final = 1024 * 1024
"""Bytes; kubeconfigs with their certificates inline have some ten thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """The current context: what it says of the cluster and of the user, unjudged."""

    path: Path
    cluster: Mapping[str, object]
    user: Mapping[str, object]

    def file(self, name: str) -> bytes:
        """Read a file that is named in it. Raises KubeconfigUnusable."""
        return read_file(self.path.parent / name)


def read_file(path: Path) -> bytes:
    """Read a file of bounded size. Raises KubeconfigUnusable."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise KubeconfigUnusable(f"{path}: {error.strerror}") from error
    except ValueError:
        raise KubeconfigUnusable(f"{str(path)!r}: no name of a file") from None
    if len(content) > SIZE_LIMIT:
        raise KubeconfigUnusable(f"{path}: over 1 MiB")
    return content


def load(path: Path) -> Kubeconfig:
    """Read a kubeconfig. Raises KubeconfigUnusable."""
    from common import strict_yaml  # noqa: PLC0415 - slow, and a cached credential needs no YAML

    try:
        document: Any = strict_yaml.load(read_file(path))
    except strict_yaml.YamlMalformed:
        raise KubeconfigUnusable(f"{path}: not YAML") from None
    try:
        context = _named(document["contexts"], document["current-context"], "context")
        return Kubeconfig(
            path=path,
            cluster=_named(document["clusters"], context["cluster"], "cluster"),
            user=_named(document["users"], context["user"], "user"),
        )
    except (KeyError, TypeError, StopIteration):
        raise KubeconfigUnusable(
            f"{path}: its current context does not lead to one cluster and one user"
        ) from None


def _named(entries: list[Mapping[str, object]], name: object, kind: str) -> Mapping[str, object]:
    entry = next(entry[kind] for entry in entries if entry["name"] == name)
    if not isinstance(entry, dict):
        raise TypeError(kind)
    return entry
