"""A hook of the documentation site: `<!-- schema: FILE -->` becomes a table of a CRD's fields."""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]
_SCHEMA = re.compile(r"<!-- schema: (\S+) -->")
_FIELD = '<code style="margin-left: {indent}em">{name}</code>'
_LIMITS = ("enum", "default", "format", "pattern", "minimum", "maximum", "maxLength", "maxItems")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page with the tables of its schemas."""
    return _SCHEMA.sub(lambda match: "\n".join(_table(_ROOT / match[1])), markdown)


def _table(file: Path) -> Iterator[str]:
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    for version in crd["versions"]:
        yield f"API version `{crd['group']}/{version['name']}`, scope {crd['scope']}\n"
        yield "| field | type | description |\n|---|---|---|"
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        for name in ("spec", "status"):
            yield from _rows(name, properties.get(name, {}))


def _rows(name: str, schema: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the row of a field, then those of the fields in it, with an indent."""
    text = schema.get("description", "")
    if schema.get("type") == "array":
        name, schema = f"{name}[]", schema["items"]
    text = html.escape(text or schema.get("description", ""), quote=False)
    text = " ".join(text.replace("|", "\\|").split())
    yield f"| {_FIELD.format(indent=depth, name=name)} | {_kind(schema)} | {text} |"
    children = dict(schema.get("properties", {}))
    if isinstance(schema.get("additionalProperties"), Mapping):
        children["*"] = schema["additionalProperties"]
    for child, fields in children.items():
        yield from _rows(child, fields, depth + 1)


def _kind(schema: Mapping[str, Any]) -> str:
    limits = [f"{name} `{_text(schema[name])}`" for name in _LIMITS if name in schema]
    return ", ".join([schema.get("type", "any"), *limits]).replace("|", "\\|")


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
