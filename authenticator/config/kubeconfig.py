"""Reads a kubeconfig on the node: the cluster and the user of its current context.

The YAML loader creates plain values only. Programs that a kubeconfig names are not run. Paths in it
are relative to its directory, as in client-go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from authenticator.errors import KubeconfigUnusable

SIZE_LIMIT: Final = 1024 * 1024
"""Bytes; kubeconfigs with their certificates inline have about ten thousand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """The cluster and the user of the current context, not validated."""

    path: Path
    cluster: Mapping[str, object]
    user: Mapping[str, object]

    def file(self, name: str) -> bytes:
        """Read a file that the kubeconfig names. Raises `KubeconfigUnusable`."""
        return read_file(self.path.parent / name)


def read_file(path: Path) -> bytes:
    """Read a file of bounded size. Raises `KubeconfigUnusable`."""
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise KubeconfigUnusable(f"{path}: {error.strerror}") from error
    except ValueError:
        raise KubeconfigUnusable(f"{str(path)!r} is not a file name") from None
    if len(content) > SIZE_LIMIT:
        raise KubeconfigUnusable(f"{path}: over 1 MiB")
    return content


def load(path: Path) -> Kubeconfig:
    """Read a kubeconfig. Raises `KubeconfigUnusable`."""
    from common.formats import strict_yaml  # noqa: PLC0415 - slow, and a cached credential needs no YAML

    try:
        document: Any = strict_yaml.load(read_file(path))
    except strict_yaml.YamlMalformed:
        raise KubeconfigUnusable(f"{path} must be YAML") from None
    try:
        context = _named(document["contexts"], document["current-context"], "context")
        return Kubeconfig(
            path=path,
            cluster=_named(document["clusters"], context["cluster"], "cluster"),
            user=_named(document["users"], context["user"], "user"),
        )
    except (KeyError, TypeError, StopIteration):
        raise KubeconfigUnusable(
            f"{path}: its current context must name one cluster and one user"
        ) from None


def _named(entries: list[Mapping[str, object]], name: object, kind: str) -> Mapping[str, object]:
    entry = next(entry[kind] for entry in entries if entry["name"] == name)
    if not isinstance(entry, dict):
        raise TypeError(kind)
    return entry
