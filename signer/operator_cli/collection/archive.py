"""The archive of a bug report: files of allowed fields, and a list of what is in it."""

import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from signer.operator_cli.collection.allowed_fields import LOG_LINE, METRIC, Fields, select

_HEADER: Final = """\
This is a bug report of node-attestation. Each file has listed fields of objects, log lines and
metrics, and only values of an expected form: names, times, numbers, versions and reasons.
Left out is everything else, above all: messages and other free texts, annotations, labels, Secrets,
public keys and digests of keys, PCR values, paths of files, addresses and provider IDs.
Names of namespaces, Clusters, Machines, nodes and policies are in it: read it before you send it.
"""
_SAMPLE: Final = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([-+]?[0-9][-+.0-9e]{0,30})")
"""A line of the text format of Prometheus; infinite values are left out."""
_LABEL: Final = re.compile(r'([a-z_]+)="([^"\\]*)"')


@dataclass
class Archive:
    """The files of one bug report."""

    created: datetime
    files: dict[str, bytes] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    """What each file is, or why it is missing, by its name."""

    def add(self, name: str, what: str, values: Iterable[object], fields: Fields) -> None:
        """Add a file of JSON values with the fields that are allowed."""
        chosen = [select(value, fields) for value in values]
        self.files[name] = json.dumps(chosen, indent=1).encode() + b"\n"
        self.contents[name] = f"{len(chosen)} {what}"

    def add_missing(self, name: str, what: str) -> None:
        """Say that what the file would have cannot be read."""
        self.contents[name] = f"missing: {what} cannot be read"

    def manifest(self) -> str:
        """Return the list of what is in the archive."""
        rows = (f"{name}  {what}\n" for name, what in sorted(self.contents.items()))
        return f"{_HEADER}\nCreated: {self.created:%Y-%m-%dT%H:%M:%SZ}\n\n{''.join(rows)}"

    def write(self, path: Path) -> None:
        """Write the archive as a new file. Raises `OSError`, also if the file exists."""
        with path.open("xb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            everything = {"MANIFEST": self.manifest().encode(), **self.files}
            for name, content in everything.items():
                entry = tarfile.TarInfo(f"node-attestation/{name}")
                entry.size, entry.mtime = len(content), int(self.created.timestamp())
                archive.addfile(entry, io.BytesIO(content))

    def add_log(self, name: str, what: str, text: str) -> None:
        """Add lines of the signer's log; a line that is no JSON has nothing that is allowed."""
        self.add(name, what, map(_read_json, text.splitlines()), LOG_LINE)

    def add_metrics(self, name: str, what: str, text: str) -> None:
        """Add samples of the signer's metrics."""
        self.add(name, what, _read_samples(text), METRIC)


def _read_json(line: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read_samples(text: str) -> Iterator[object]:
    for line in text.splitlines():
        sample = _SAMPLE.fullmatch(line)
        if sample is not None:
            name, labels, value = sample.groups()
            pairs = dict(_LABEL.findall(labels or ""))
            yield {"name": name, "labels": pairs, "value": float(value)}
