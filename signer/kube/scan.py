"""Cuts JSON into its parts without recursion, where the decoder refuses the whole.

The decoder recurses, so one object that is nested too deeply makes the page or the event around it
unreadable. The scanner only counts brackets outside of strings. It finds where each object ends,
and whose object it is: a fact that it reads at depth three at most. It accepts nothing: the decoder
reads each part again, alone. Most of its work is done by regular expressions that never go back.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from signer.kinds.decode import MaybeText, ObjectMeta, decode

_LEVELS: Final = 8
"""Levels of brackets that one step skips. What is deeper costs a step for each level, or less."""
_RUN: Final = 8
"""Brackets in a row, all of them opening or closing, that one step counts."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_PLAIN: Final = rb'[^"\[\]{}]++|' + _STRING


def _skipping(levels: int) -> bytes:
    """Return a pattern for anything without brackets, and for what has up to `levels` of them."""
    nested = rb"|[\[{]" + _skipping(levels - 1) + rb"[\]}]" if levels else b""
    return rb"(?:" + _PLAIN + nested + rb")*+"


_BRACKET: Final = re.compile(_skipping(_LEVELS) + rb"([\[{\]}])", re.DOTALL)
_OPENING: Final = re.compile(rb"(?>(?:%s[\[{]){%d})" % (_skipping(0), _RUN), re.DOTALL)
_CLOSING: Final = re.compile(rb"(?>(?:%s[\]}]){%d})" % (_skipping(0), _RUN), re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb'|[^\s,:"\[\]{}]++', re.DOTALL)
_NAME: Final = re.compile(rb"(" + _STRING + rb")\s*+:\s*+", re.DOTALL)
_SPACE: Final = re.compile(rb"\s*+")


class Identity(ObjectMeta):
    """Which object it is."""

    uid: MaybeText = None
    resource_version: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    api_version: MaybeText = None
    kind: MaybeText = None


_OF_OBJECT: Final[tuple[str, ...]] = ("apiVersion", "kind")
_OF_METADATA: Final[tuple[str, ...]] = ("name", "namespace", "uid", "resourceVersion")


def identify(text: bytes) -> Identity:
    """Return which object this is. Raises `ValueError`: it does not say so."""
    fields = members(text)
    metadata = members(fields.get("metadata", b""))
    found = {name: fields[name] for name in _OF_OBJECT if name in fields}
    found |= {name: metadata[name] for name in _OF_METADATA if name in metadata}
    parts = {name: msgspec.Raw(value) for name, value in found.items()}
    return decode(msgspec.json.encode(parts), Identity)


def members(text: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, each as it is written.

    Raises `ValueError` for any other text, and for brackets that do not end.
    """
    return dict(_members(text))


def elements(text: bytes) -> Iterator[bytes]:
    """Yield the elements of a JSON array, each as it is written; raises as `members` does."""
    for _, element in _parts(text, b"[", b"]"):
        yield element


def _members(text: bytes) -> Iterator[tuple[str, bytes]]:
    for name, value in _parts(text, b"{", b"}"):
        yield decode(name, str), value


def _parts(text: bytes, opening: bytes, closing: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the parts between two brackets, each with its name, which an element does not have."""
    at = _skip_space(text, 0)
    if text[at : at + 1] != opening:
        raise ValueError(f"the text must begin with {opening.decode()}")
    at = _skip_space(text, at + 1)
    has_more = text[at : at + 1] != closing
    while has_more:
        name = b""
        if opening == b"{":
            found = _NAME.match(text, at)
            if found is None:
                raise ValueError("an object must have names")
            name, at = found[1], found.end()
        end = _end_of_value(text, at)
        yield name, text[at:end]
        at = _skip_space(text, end)
        has_more = text[at : at + 1] == b","
        if has_more:
            at = _skip_space(text, at + 1)
        elif text[at : at + 1] != closing:
            raise ValueError("the text must continue with a comma, or end")
    if _skip_space(text, at + 1) != len(text):
        raise ValueError("nothing may follow the end of the text")


def _skip_space(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _end_of_value(text: bytes, at: int) -> int:
    if text[at : at + 1] in {b"{", b"["}:
        return _end_of_brackets(text, at)
    found = _SCALAR.match(text, at)
    if found is None:
        raise ValueError("a value is missing")
    return found.end()


def _end_of_brackets(text: bytes, at: int) -> int:
    """Return where the bracket at `at` ends. Whether the brackets match is the decoder's to say."""
    depth, at = 1, at + 1
    while depth:
        found = _BRACKET.match(text, at)
        if found is None:
            raise ValueError("a bracket must end")
        at = found.end()
        if found[1] in b"[{":
            depth += 1
            run, step = _OPENING, _RUN
        else:
            depth -= 1
            run, step = _CLOSING, -_RUN
        while depth + step > 0 and (found := run.match(text, at)) is not None:
            depth, at = depth + step, found.end()
    return at
