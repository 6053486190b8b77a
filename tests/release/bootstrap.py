"""Reads the examples in packaging/bootstrap: which files they write on a node."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import yaml

DIRECTORY: Final = Path(__file__).parents[2] / "packaging/bootstrap"
CLOUD_CONFIGS: Final = sorted(DIRECTORY.glob("*.cloud-config.yaml"))
IGNITION: Final = sorted(DIRECTORY.glob("*.ign"))
MANIFESTS: Final = sorted(set(DIRECTORY.glob("*.yaml")) - set(CLOUD_CONFIGS))
EXAMPLES: Final = (*CLOUD_CONFIGS, *IGNITION, *MANIFESTS)
_DATA_URL: Final = "data:,"


@dataclass(frozen=True, slots=True)
class File:
    """A file that bootstrap data writes."""

    path: str
    mode: int
    content: str


def files(example: Path) -> Iterator[File]:
    """Yield the files of an example."""
    text = example.read_text(encoding="utf-8")
    if example in IGNITION:
        for entry in json.loads(text)["storage"]["files"]:
            content = unquote(entry["contents"]["source"].removeprefix(_DATA_URL))
            yield File(entry["path"], entry["mode"], content)
        return
    for entry in _entries(yaml.safe_load(text)):
        yield File(entry["path"], int(entry["permissions"], 8), entry["content"])


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the list of files of a cloud-config or of an object of Cluster API."""
    match document:
        case {"write_files": list(entries)}:
            return entries
        case {"spec": {"kubeadmConfigSpec": {"files": list(entries)}}}:
            return entries
        case {"spec": {"template": {"spec": {"files": list(entries)}}}}:
            return entries
        case _:
            raise ValueError("the example writes no files")
