"""The README of the chart: a table of its values, in the form of helm-docs.

`make manifests` writes it. A comment that begins with `--` describes the key below it. A key
without such a comment gets no row, if a key above it has one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from builders.version import CHART

README: Final = CHART / "README.md"
_START: Final = re.compile(r" *# -- (.*)")
_MORE: Final = re.compile(r" *# (.*)")
_TYPES: Final = {dict: "object", list: "list", str: "string", int: "int", bool: "bool"}


class UndescribedValue(Exception):
    """A value has no comment that begins with `--`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One value."""

    key: str
    default: Any
    description: str


def read_values(text: str) -> list[Row]:
    """Return the described values, in the order of the file."""
    rows = _rows(yaml.compose(text), yaml.safe_load(text), text.splitlines(), "")
    return list(rows)


def build_readme() -> str:
    """Return the README for the present chart."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    rows = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    lines = [
        f"# {about['name']}",
        "",
        "<!-- Written by `make manifests` from Chart.yaml and values.yaml. Do not edit. -->",
        "",
        f"{about['description']}.",
        "",
        f"Version {about['version']}, for Kubernetes {about['kubeVersion'].removesuffix('-0')}.",
        "",
        "```sh",
        f"helm install {about['name']} {about['name']}-{about['version']}.tgz \\",
        "  --namespace node-attestation-system --create-namespace --values values.yaml",
        "```",
        "",
        f"Documentation: {about['home']} and `docs/install-signer.md`.",
        "",
        "## Values",
        "",
        "| Key | Type | Default | Description |",
        "|-----|------|---------|-------------|",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def write_readme() -> None:
    """Write the README again."""
    README.write_text(build_readme(), encoding="utf-8")


def _rows(node: Any, values: Any, lines: list[str], prefix: str) -> Iterator[Row]:  # noqa: ANN401
    for name, value in node.value:
        key = f"{prefix}{name.value}"
        default = values[name.value]
        description = _description(lines, name.start_mark.line)
        if description:
            yield Row(key=key, default=default, description=description)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _rows(value, default, lines, f"{key}.")
        else:
            raise UndescribedValue(f"{key} must have a comment above it that begins with `# --`")


def _description(lines: list[str], line: int) -> str:
    """Return the comment that ends above a line, if it begins with `--`."""
    words: list[str] = []
    for text in reversed(lines[:line]):
        if start := _START.fullmatch(text):
            return " ".join([start[1], *words])
        if not (more := _MORE.fullmatch(text)):
            break
        words.insert(0, more[1])
    return ""


def _line(row: Row) -> str:
    default = json.dumps(row.default, separators=(",", ":"))
    return f"| {row.key} | {_TYPES[type(row.default)]} | `{default}` | {row.description} |"
